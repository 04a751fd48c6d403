"""All launches of an executable as one kernel for a CPU, whose work-groups claim tiles."""

from __future__ import annotations

from itertools import pairwise

from tflgpu.artifact.executable import CACHE_LINE, Claiming, Executable
from tflgpu.codegen.environment import environment
from tflgpu.codegen.launch_calls import binding_names, calls, in_intervals
from tflgpu.codegen.render import KernelSource

CLAIMING = "claiming"


def can_claim(executable: Executable) -> bool:
    """Whether it is worthwhile, and all kernels are of one work-item: then none has barriers."""
    return len(executable.launches) > 1 and all(launch.local_size == 1 for launch in executable.launches)


def render_claiming(source: KernelSource, executable: Executable) -> tuple[str, Claiming]:
    """The launches of ``executable`` as one kernel: its program, and what the executor must know of it."""
    order = in_intervals(executable)
    claiming = Claiming(CLAIMING, tuple(order))
    kernel = (
        environment()
        .get_template("executor/claiming.cl.j2")
        .render(
            function=CLAIMING,
            buffers=len(executable.buffers),
            bindings=binding_names(executable),
            workspace=max(f.workspace for f in source.functions),
            header=CACHE_LINE,
            row=claiming.row,
            tiles=[executable.launches[number].groups for number in order],
            intervals=_intervals([executable.launches[number].interval for number in order]),
            cases=calls(source, executable, order, 1),
        )
    )
    # One copy of each, which takes Intel's compiler an eighth of the time that inlined ones take.
    tiles = (f"__attribute__((noinline)) {f.tile}" for f in source.functions)
    return "\n".join((source.prelude, *tiles, kernel)), claiming


def _intervals(intervals: list[int]) -> list[int]:
    """For each place where an interval ends, the place where it begins; -1 for the others."""
    ends = [a != b for a, b in pairwise((*intervals, None))]
    return [intervals.index(own) if end else -1 for own, end in zip(intervals, ends, strict=True)]
