"""All launches of an executable as one kernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from tflgpu.artifact.executable import Executable, Launch, Persistent, Slot
from tflgpu.codegen.environment import environment
from tflgpu.codegen.render import Function, KernelSource

PERSISTENT = "persistent"

Place = tuple[int, int]  # a buffer's number, and an offset in bytes


def render_persistent(source: KernelSource, executable: Executable, *, ptx: bool) -> tuple[str, Persistent]:
    """The launches of ``executable`` as one kernel: its program, and what the executor must know of it.

    ptx: whether the device's compiler accepts NVIDIA's inline assembly.
    """
    launches = executable.launches
    bindings = {executable.bindings[number].place: f"binding{number}" for number in executable.movable}
    local_size = max((launch.local_size for launch in launches), default=1)
    if any(launch.local_size not in (1, local_size) for launch in launches):
        raise ValueError("kernels of one family share their local size, or are of one work-item")
    order = sorted(range(len(launches)), key=lambda number: launches[number].interval)
    kernel = (
        environment()
        .get_template("executor/persistent.cl.j2")
        .render(
            function=PERSISTENT,
            buffers=len(executable.buffers),
            bindings=[f"binding{number}" for number in executable.movable],
            results=executable.results,
            local_size=local_size,
            workspace=max((f.workspace for f in source.functions), default=0),
            launches=len(order),
            cases=_cases(
                {f.name: f for f in source.functions}, [launches[number] for number in order], bindings, local_size
            ),
            within_levels=[
                place
                for place, (number, following) in enumerate(pairwise(order))
                if launches[number].interval == launches[following].interval
            ],
        )
    )
    grid = environment().get_template("ptx/grid_ptx.cl.j2" if ptx else "executor/grid.cl.j2").render()
    tiles = (f"static inline {f.tile}" for f in source.functions)
    text = "\n".join((source.prelude, grid, *tiles, kernel))
    return text, Persistent(PERSISTENT, local_size, tuple(order), clock=ptx)


def _cases(
    functions: Mapping[str, Function], launches: Sequence[Launch], bindings: Mapping[Place, str], local_size: int
) -> list[dict[str, Any]]:
    """Groups of equal launches: places in the order, number of tiles, and call, which can depend on ``place``.

    Only the first work-item makes calls of kernels that are of one.
    """
    places: dict[tuple[str, int], list[int]] = {}
    alone = {launch.function for launch in launches if launch.local_size < local_size}
    for place, launch in enumerate(launches):
        places.setdefault((launch.function, launch.groups), []).append(place)
    return [
        {
            "places": own,
            "tiles": tiles,
            "call": f"{'if (get_local_id(0) == 0) ' if name in alone else ''}{name}_tile("
            f"{', '.join(_arguments(functions[name], own, launches, bindings))}, tile, workspace)",
        }
        for (name, tiles), own in places.items()
    ]


def _arguments(
    function: Function, places: Sequence[int], launches: Sequence[Launch], bindings: Mapping[Place, str]
) -> Iterator[str]:
    """An expression for each pointer of a function that is launched at several places."""
    for i, pointer in enumerate(function.pointers):
        slots = {place: launches[place].arguments[i] for place in places}
        *others, last = places
        choices = (
            f"place == {p} ? {_address(pointer, slots[p], bindings)} : " for p in others if slots[p] != slots[last]
        )
        yield "".join((*choices, _address(pointer, slots[last], bindings)))


def _address(pointer: str, slot: Slot, bindings: Mapping[Place, str]) -> str:
    place = bindings.get(slot.place) or f"buffer{slot.buffer} + {slot.offset}"
    return f"({pointer.replace('restrict', '').strip()}){place}"
