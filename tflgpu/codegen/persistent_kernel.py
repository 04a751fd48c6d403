"""All launches of an executable as one kernel."""

from __future__ import annotations

from itertools import pairwise

from tflgpu.artifact.executable import Executable, Persistent
from tflgpu.codegen.environment import AWAIT_INPUTS, environment
from tflgpu.codegen.launch_calls import binding_names, calls, in_intervals
from tflgpu.codegen.render import Function, KernelSource

PERSISTENT = "persistent"

# Functions from which on the compiler is kept from computing ahead for all of them: see docs/internals/decisions.md.
MANY_FUNCTIONS = 40


def render_persistent(source: KernelSource, executable: Executable, *, ptx: bool) -> tuple[str, Persistent]:
    """The launches of ``executable`` as one kernel: its program, and what the executor must know of it.

    ptx: whether the device's compiler accepts NVIDIA's inline assembly.
    """
    launches = executable.launches
    local_size = max((launch.local_size for launch in launches), default=1)
    if any(launch.local_size not in (1, local_size) for launch in launches):
        raise ValueError("kernels of one family share their local size, or are of one work-item")
    order, hides = in_intervals(executable), len(source.functions) >= MANY_FUNCTIONS
    call = "meeting, waits && tile == first_tile" + (", own_item" if hides else "")
    kernel = (
        environment()
        .get_template("executor/persistent.cl.j2")
        .render(
            function=PERSISTENT,
            ranges=executable.ranges,
            bindings=binding_names(executable),
            results=executable.results,
            local_size=local_size,
            item_bits=(local_size - 1).bit_length(),
            workspace=max((f.workspace for f in source.functions), default=0),
            launches=len(order),
            hides=hides,
            cases=calls(source, executable, order, local_size, call),
            within_levels=[
                place
                for place, (number, following) in enumerate(pairwise(order))
                if launches[number].interval == launches[following].interval
            ],
        )
    )
    barrier = environment().get_template("executor/grid_barrier.cl.j2").render(ptx=ptx)
    grid = environment().get_template("ptx/grid_ptx.cl.j2" if ptx else "executor/grid.cl.j2").render()
    tiles = (_inlined(function, hides) for function in source.functions)
    text = "\n".join((source.prelude, grid, barrier, *tiles, kernel))
    return text, Persistent(PERSISTENT, local_size, tuple(order), clock=ptx)


def _inlined(function: Function, hides: bool) -> str:
    """The text of a function that waits for other work-groups where it says so, if `waits`.

    hides: whether it is told the work-item's number, and does not ask for it.
    """
    head, body = function.tile.split(")", 1)
    body = body.replace(AWAIT_INPUTS, "if (waits) await_others(meeting);")
    added = "Meeting meeting, bool waits"
    if hides:
        added, body = f"{added}, uint own_item", body.replace("get_local_id(0)", "own_item")
    return f"static inline {head}, {added}){body}"
