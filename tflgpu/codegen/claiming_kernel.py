"""All launches of an executable as one kernel for a CPU, whose work-groups claim tiles."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, groupby

from tflgpu.artifact.executable import CACHE_LINE, Claiming, Executable, Launch
from tflgpu.codegen.environment import rendered
from tflgpu.codegen.launch_calls import binding_names, calls, in_intervals
from tflgpu.codegen.render import KernelSource
from tflgpu.codegen.shared_functions import Variant

CLAIMING = "claiming"

# Work of a launch, in multiplications or in half bytes, that takes less time than a barrier of two work-groups.
BRIEF = 100_000

# How often a work-group looks whether an interval is over before it looks for tiles that others have not claimed.
GLANCES = 64


def can_claim(executable: Executable) -> bool:
    """Whether it is worthwhile, and all kernels are of one work-item: then none has barriers."""
    return len(executable.launches) > 1 and all(launch.local_size == 1 for launch in executable.launches)


def render_claiming(source: KernelSource, executable: Executable, glances: int = GLANCES) -> tuple[str, Claiming]:
    """Return all launches as one kernel: its program, and what the executor must know of it.

    Args:
        source: The rendered functions.
        executable: The buffers and launches of these functions.
        glances: How often a work-group looks for finished tiles before it leaves the run.
    """
    order = in_intervals(executable)
    launches = [executable.launches[number] for number in order]
    claiming = Claiming(CLAIMING, tuple(order))
    kernel = rendered(
        "executor/claiming",
        function=CLAIMING,
        buffers=len(executable.buffers),
        bindings=binding_names(executable),
        workspace=max(f.workspace for f in source.functions),
        header=CACHE_LINE,
        row=claiming.row,
        glances=glances,
        cases=calls({f.name: Variant(f) for f in source.functions}, executable, launches, range(len(order)), 1),
        **tables(launches),
    )
    # One copy of each, which takes Intel's compiler an eighth of the time that inlined ones take.
    tiles = (f"__attribute__((noinline)) {f.tile()}" for f in source.functions)
    return "\n".join((source.prelude, *tiles, kernel)), claiming


def tables(order: Sequence[Launch]) -> dict[str, list[int]]:
    """Return the template's ``tiles``, ``chains``, ``intervals`` and ``left``.

    Neighbouring intervals of brief launches only are one interval, and one chain.

    Args:
        order: The launches in the order of their intervals.
    """
    chains, intervals, left = list[int](), list[int](), list[int]()
    by_interval = (list(own) for _, own in groupby(order, key=lambda launch: launch.interval))
    for brief, several in groupby(by_interval, key=lambda own: all(map(_is_brief, own))):
        for own in [list(chain.from_iterable(several))] if brief else several:
            begin, end = len(chains), len(chains) + len(own)
            chains += [end] * len(own) if brief else range(begin + 1, end + 1)
            intervals += [end] * len(own)
            left += [1 if brief else sum(launch.groups for launch in own[i:]) for i in range(len(own))]
    return {"tiles": [launch.groups for launch in order], "chains": chains, "intervals": intervals, "left": left}


def _is_brief(launch: Launch) -> bool:
    return launch.groups == 1 and launch.work < BRIEF
