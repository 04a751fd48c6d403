"""All launches of an executable as one kernel, or as a few where they have many functions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count, groupby, pairwise

from tflgpu.artifact.executable import Executable, Persistent
from tflgpu.codegen.environment import AWAIT_INPUTS, environment
from tflgpu.codegen.launch_calls import binding_names, calls, in_intervals
from tflgpu.codegen.render import KernelSource

PERSISTENT = "persistent"  # how the names of the kernels begin

# Parameters of functions that wait for other work-groups where they say so, if `waits`, and how they do.
WAITING = ("Meeting meeting", "bool waits")
AWAITING = f"#define {AWAIT_INPUTS} if (waits) await_others(meeting);"

# Functions that one kernel may have, and how many each has at most if they are more. A compiler takes a time that grows
# faster than their number, and several kernels are compiled at the same time, but take a launch each: see
# docs/internals/measurements/compiling.md.
MANY_FUNCTIONS, OF_EACH = 40, 25


def render_persistent(source: KernelSource, executable: Executable, *, ptx: bool) -> tuple[str, Persistent]:
    """The launches of ``executable`` as one kernel or a few: their program, and what the executor must know of it.

    ptx: whether the device's compiler accepts NVIDIA's inline assembly.
    """
    launches = executable.launches
    local_size = max((launch.local_size for launch in launches), default=1)
    if any(launch.local_size not in (1, local_size) for launch in launches):
        raise ValueError("kernels of one family share their local size, or are of one work-item")
    order = in_intervals(executable)
    within_levels = [
        place
        for place, (number, following) in enumerate(pairwise(order))
        if launches[number].interval == launches[following].interval
    ]
    parts = _parts(executable, order)
    names = [f"{PERSISTENT}_{number}" if number else PERSISTENT for number in range(len(parts))]
    template = environment().get_template("executor/persistent.cl.j2")
    kernels = [
        template.render(
            function=name,
            ranges=executable.ranges,
            bindings=binding_names(executable),
            results=executable.results,
            local_size=local_size,
            workspace=max((f.workspace for f in source.functions), default=0),
            places=(places.start, places.stop),
            cases=calls(source, executable, order, places, local_size, "meeting, waits && tile == first_tile"),
            within_levels=[place for place in within_levels if place in places],
        )
        for name, places in zip(names, parts, strict=True)
    ]
    if len(kernels) > 1:
        kernels = [f"#if !defined PART || PART == {part}\n{kernel}\n#endif" for part, kernel in enumerate(kernels)]
    barrier = environment().get_template("executor/grid_barrier.cl.j2").render(ptx=ptx)
    grid = environment().get_template("ptx/grid_ptx.cl.j2" if ptx else "executor/grid.cl.j2").render()
    functions = (f"static inline {function.tile(*WAITING)}" for function in source.functions)
    text = "\n".join((AWAITING, source.prelude, grid, barrier, *functions, *kernels))
    return text, Persistent(tuple(names), local_size, tuple(order), clock=ptx)


def _parts(executable: Executable, order: Sequence[int]) -> list[range]:
    """The places of each kernel's launches: one kernel, or as few as can be, with about as many functions each."""
    if len({launch.function for launch in executable.launches}) <= MANY_FUNCTIONS:
        return [range(len(order))]
    fewest = len(_cut(executable, order, OF_EACH))
    return next(found for most in count(1) if len(found := _cut(executable, order, most)) <= fewest)


def _cut(executable: Executable, order: Sequence[int], most: int) -> list[range]:
    """The places of each kernel's launches, if a kernel ends ahead of the interval that adds one function too many."""
    launches = [executable.launches[number] for number in order]
    begins, functions = [0], set[str]()
    for _, interval in groupby(range(len(order)), key=lambda place: launches[place].interval):
        places = list(interval)
        own = {launches[place].function for place in places}
        if functions and len(functions | own) > most:
            begins.append(places[0])
            functions = set()
        functions |= own
    return [range(begin, end) for begin, end in pairwise((*begins, len(order)))]
