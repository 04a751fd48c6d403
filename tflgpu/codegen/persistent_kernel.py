"""All launches of an executable as one kernel, or as a few where they have many functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise

from tflgpu.artifact.executable import Executable, Launch, Persistent, PersistentRun
from tflgpu.codegen.environment import AWAIT_INPUTS, rendered
from tflgpu.codegen.launch_calls import binding_names, calls, in_intervals, numbers_of
from tflgpu.codegen.render import KernelSource
from tflgpu.codegen.shared_functions import Variant, variants
from tflgpu.plan.program_parts import find_runs

PERSISTENT = "persistent"  # how the names of the kernels begin

# Bytes of constant memory for the numbers of shared functions. Devices have 64 KiB, and all kernels become one program.
MOST_NUMBERS = 1 << 15

# Parameters of functions that wait for other work-groups where they say so, if `waits`, and how they do.
WAITING = ("Meeting meeting", "bool waits")
AWAITING = f"#define {AWAIT_INPUTS} if (waits) await_others(meeting);"


def render_persistent(
    source: KernelSource, executable: Executable, *, ptx: bool, most_numbers: int = MOST_NUMBERS
) -> tuple[str, Persistent]:
    """Return all launches as one kernel or a few: their program, and what the executor must know of it.

    Args:
        source: The rendered functions.
        executable: The buffers and launches of these functions.
        ptx: Whether the device's compiler accepts NVIDIA's inline assembly.
        most_numbers: Bytes of constant memory for the numbers of shared functions.

    Raises:
        ValueError: Kernels have different local sizes.
    """
    order = in_intervals(executable)
    launches = [executable.launches[number] for number in order]
    local_size = max((launch.local_size for launch in launches), default=1)
    if any(launch.local_size not in (1, local_size) for launch in launches):
        raise ValueError("kernels of one family share their local size, or are of one work-item")
    within_levels = {place for place, (one, other) in enumerate(pairwise(launches)) if one.interval == other.interval}
    shared = variants(source.functions)
    runs = _runs(launches, shared)
    tables = {
        name: numbers_of(shared, launches, places, f"numbers_{part}")
        for part, (name, places) in enumerate(_places(runs).items())
    }
    if sum(table.bytes for table in tables.values() if table) > most_numbers:
        shared = {function.name: Variant(function) for function in source.functions}
        runs, tables = _runs(launches, shared), {}
    persistent = Persistent(runs, local_size, tuple(order), clock=ptx)
    kernels, parts_of = list[str](), dict[str, set[int]]()
    for part, (name, places) in enumerate(_places(runs).items()):
        for place in places:
            parts_of.setdefault(shared[launches[place].function].function.name, set()).add(part)
        repeats = name in persistent.repeated
        table = tables.get(name)
        kernel = rendered(
            "executor/persistent",
            function=name,
            ranges=executable.ranges,
            apart=executable.apart,
            bindings=binding_names(executable),
            results=executable.results,
            local_size=local_size,
            workspace=max((f.workspace for f in source.functions), default=0),
            places=("begin", "end") if repeats else (min(places, default=0), len(places) + min(places, default=0)),
            repeats=repeats,
            cases=calls(
                shared, executable, launches, places, local_size, "meeting, waits && tile == first_tile", table
            ),
            within_levels=sorted(within_levels.intersection(places)),
        )
        kernels.append((table.text if table else "") + kernel)
    compiled = {variant.function.name: variant for variant in shared.values()}
    functions = {
        name: f"static inline {variant.function.tile(*WAITING, *variant.declared)}"
        for name, variant in compiled.items()
    }
    if len(kernels) > 1:
        kernels = [for_parts([part], kernel) for part, kernel in enumerate(kernels)]
        functions = {name: for_parts(sorted(parts_of[name]), text) for name, text in functions.items()}
    barrier = rendered("executor/grid_barrier", ptx=ptx)
    grid = rendered("ptx/grid_ptx" if ptx else "executor/grid")
    return "\n".join((AWAITING, source.prelude, grid, barrier, *functions.values(), *kernels)), persistent


def for_parts(parts: Sequence[int], text: str) -> str:
    """Return the text of a program for some of its parts, where parts are compiled alone: PART is the number of one.

    Args:
        parts: Numbers of parts that have the text, besides the whole program.
        text: C.
    """
    return "\n".join((f"#if !defined PART{''.join(f' || PART == {part}' for part in parts)}", text, "#endif"))


def _places(runs: Sequence[PersistentRun]) -> dict[str, list[int]]:
    """Return the places of the launches that kernels run, by the kernels' names."""
    places: dict[str, list[int]] = {}
    for run in runs:
        places.setdefault(run.function, []).extend(range(run.begin, run.end))
    return places


def _runs(launches: Sequence[Launch], shared: Mapping[str, Variant]) -> tuple[PersistentRun, ...]:
    """Return the launches of kernels."""
    by_interval = groupby(launches, key=lambda launch: launch.interval)
    runs = find_runs([[shared[launch.function].function.name for launch in own] for _, own in by_interval])
    names = {run.kernel: f"{PERSISTENT}_{run.kernel}" if run.kernel else PERSISTENT for run in runs}
    return tuple(PersistentRun(names[run.kernel], run.places.start, run.places.stop) for run in runs)
