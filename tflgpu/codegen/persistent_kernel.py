"""All launches of an executable as one kernel."""

from __future__ import annotations

from itertools import pairwise

from tflgpu.artifact.executable import Executable, Persistent
from tflgpu.codegen.environment import AWAIT_INPUTS, environment
from tflgpu.codegen.launch_calls import binding_names, calls, in_intervals
from tflgpu.codegen.render import Function, KernelSource

PERSISTENT = "persistent"


def render_persistent(source: KernelSource, executable: Executable, *, ptx: bool) -> tuple[str, Persistent]:
    """The launches of ``executable`` as one kernel: its program, and what the executor must know of it.

    ptx: whether the device's compiler accepts NVIDIA's inline assembly.
    """
    launches = executable.launches
    local_size = max((launch.local_size for launch in launches), default=1)
    if any(launch.local_size not in (1, local_size) for launch in launches):
        raise ValueError("kernels of one family share their local size, or are of one work-item")
    order = in_intervals(executable)
    kernel = (
        environment()
        .get_template("executor/persistent.cl.j2")
        .render(
            function=PERSISTENT,
            buffers=len(executable.buffers),
            bindings=binding_names(executable),
            results=executable.results,
            local_size=local_size,
            workspace=max((f.workspace for f in source.functions), default=0),
            launches=len(order),
            cases=calls(source, executable, order, local_size, "meeting, waits && tile == first_tile"),
            within_levels=[
                place
                for place, (number, following) in enumerate(pairwise(order))
                if launches[number].interval == launches[following].interval
            ],
        )
    )
    barrier = environment().get_template("executor/grid_barrier.cl.j2").render(ptx=ptx)
    grid = environment().get_template("ptx/grid_ptx.cl.j2" if ptx else "executor/grid.cl.j2").render()
    tiles = (_inlined(function) for function in source.functions)
    text = "\n".join((source.prelude, grid, barrier, *tiles, kernel))
    return text, Persistent(PERSISTENT, local_size, tuple(order), clock=ptx)


def _inlined(function: Function) -> str:
    """The text of a function that waits for other work-groups where it says so, if its last parameter says so."""
    head, body = function.tile.split(")", 1)
    body = body.replace(AWAIT_INPUTS, "if (waits) await_others(meeting);")
    return f"static inline {head}, Meeting meeting, bool waits){body}"
