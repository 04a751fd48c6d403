"""The launches of an executable as calls in one kernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tflgpu.artifact.executable import Executable, Launch, Slot
from tflgpu.codegen.functions import Function, Pointer
from tflgpu.codegen.render import KernelSource

Place = tuple[int, int]  # a buffer's number, and an offset in bytes


class Case(NamedTuple):
    """Launches of one function: their places in the order, their number of tiles, and the call of a ``tile``.

    The call can depend on ``place``. awaits: whether the function says from where on it reads inputs.
    """

    places: tuple[int, ...]
    tiles: int
    call: str
    awaits: bool


def in_intervals(executable: Executable) -> list[int]:
    """The numbers of the launches in an order in which each barrier interval is in one piece."""
    launches = executable.launches
    return sorted(range(len(launches)), key=lambda number: launches[number].interval)


def binding_names(executable: Executable) -> list[str]:
    """A name for each binding that can lie in the caller's memory."""
    return [f"binding{number}" for number in executable.movable]


def calls(
    source: KernelSource,
    executable: Executable,
    order: Sequence[int],
    places: Sequence[int],
    local_size: int,
    last_argument: str = "",
) -> list[Case]:
    """Groups of equal launches, which stand at these places of the order, in a kernel of ``local_size`` work-items.

    Only the first work-item makes calls of kernels that are of one. last_argument: of every call, a C expression.
    """
    functions = {f.name: f for f in source.functions}
    launches = [executable.launches[number] for number in order]
    bindings = {executable.bindings[number].place: f"binding{number}" for number in executable.movable}
    last = ("tile", "workspace", *filter(None, [last_argument]))
    groups: dict[tuple[str, int], list[int]] = {}
    alone = {launch.function for launch in launches if launch.local_size < local_size}
    for place in places:
        launch = launches[place]
        groups.setdefault((launch.function, launch.groups), []).append(place)
    return [
        Case(
            tuple(own),
            tiles,
            f"{'if (get_local_id(0) == 0) ' if name in alone else ''}{name}_tile("
            f"{', '.join((*_arguments(functions[name], own, launches, bindings), *last))})",
            functions[name].body.awaits,
        )
        for (name, tiles), own in groups.items()
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


def _address(pointer: Pointer, slot: Slot, bindings: Mapping[Place, str]) -> str:
    place = bindings.get(slot.place) or f"buffer{slot.buffer} + {slot.offset}"
    return f"({pointer.plain_type}){place}"
