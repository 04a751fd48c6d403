"""The launches of an executable as calls in one kernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tflgpu.artifact.executable import Executable, Launch, Slot
from tflgpu.codegen.functions import Function, Pointer
from tflgpu.codegen.shared_functions import Variant

Place = tuple[int, int]  # a buffer's number, and an offset in bytes


class Case(NamedTuple):
    """Launches of one function: their places in the order, their number of tiles, and the call of a ``tile``.

    Tiles and the call can depend on ``place``. awaits: whether the function says from where on it reads inputs.
    """

    places: tuple[int, ...]
    tiles: str
    call: str
    awaits: bool


class Table(NamedTuple):
    """Numbers by which launches of one function differ, for all launches of a kernel.

    Attributes:
        name: Of the table.
        first: The first place that has a row.
        rows: The row of each place from there on; any where a launch has no numbers.
        numbers: Of each row, as literals of C of type int.
    """

    name: str
    first: int
    rows: tuple[int, ...]
    numbers: tuple[tuple[str, ...], ...]

    @property
    def bytes(self) -> int:
        """Bytes of constant memory."""
        return 2 * len(self.rows) + 4 * sum(map(len, self.numbers))

    def number(self, column: int, kind: str) -> str:
        """Return a C expression of a number of the launch at ``place``.

        Args:
            column: The number's place in a row.
            kind: Its type in C.
        """
        element = f"{self.name}[{len(self.numbers[0])} * {self.name}_rows[place - {self.first}] + {column}]"
        return f"as_float({element})" if kind == "float" else element

    @property
    def text(self) -> str:
        """Its definition."""
        numbers = ", ".join(number for row in self.numbers for number in row)
        rows = ", ".join(map(str, self.rows))
        return f"__constant ushort {self.name}_rows[] = {{{rows}}};\n__constant int {self.name}[] = {{{numbers}}};\n"


def in_intervals(executable: Executable) -> list[int]:
    """Return the numbers of the launches in an order in which each barrier interval is in one piece."""
    launches = executable.launches
    return sorted(range(len(launches)), key=lambda number: launches[number].interval)


def binding_names(executable: Executable) -> list[str]:
    """Return a name for each binding that can lie in the caller's memory."""
    return [f"binding{number}" for number in executable.movable]


def calls(
    functions: Mapping[str, Variant],
    executable: Executable,
    launches: Sequence[Launch],
    places: Sequence[int],
    local_size: int,
    last_argument: str = "",
    table: Table | None = None,
) -> list[Case]:
    """Return the calls of launches in a kernel, equal ones in groups.

    Only the first work-item makes calls of kernels that are of one work-item.

    Args:
        functions: By the names that launches have for them.
        executable: The buffers that calls name.
        launches: All launches in their order.
        places: Those to call, as places in that order.
        local_size: Work-items of a group of the kernel.
        last_argument: Is added to every call: a C expression; empty for none.
        table: Made by :func:`numbers_of`, where there are numbers.
    """
    bindings = {executable.bindings[number].place: f"binding{number}" for number in executable.movable}
    last = ("tile", "workspace", *filter(None, [last_argument]))
    groups: dict[tuple[str, int | None], list[int]] = {}
    alone = {functions[launch.function].function.name for launch in launches if launch.local_size < local_size}
    for place in places:
        launch = launches[place]
        variant = functions[launch.function]
        groups.setdefault((variant.function.name, None if variant.names else launch.groups), []).append(place)
    found = []
    for (name, tiles), own in groups.items():
        variant = functions[launches[own[0]].function]
        arguments = (*_arguments(variant.function, own, launches, bindings), *last, *_numbers(variant, table))
        call = f"{'if (get_local_id(0) == 0) ' if name in alone else ''}{name}_tile({', '.join(arguments)})"
        found.append(Case(tuple(own), _tiles(tiles, table), call, variant.function.body.awaits))
    return found


def numbers_of(
    functions: Mapping[str, Variant], launches: Sequence[Launch], places: Sequence[int], name: str
) -> Table | None:
    """Return the table of the numbers of launches: their tiles, and what their functions take.

    Args:
        functions: By the names that launches have for them.
        launches: All launches in their order.
        places: Those in the table, as places in that order.
        name: The table's name in C.

    Returns:
        None if no function takes numbers.
    """
    rows: dict[tuple[str, ...], int] = {}
    row_of: dict[int, int] = {}
    for place in places:
        variant = functions[launches[place].function]
        if variant.names:
            numbers = (str(launches[place].groups), *map(_bits, variant.numbers))
            row_of[place] = rows.setdefault(numbers, len(rows))
    if not row_of:
        return None
    width, first = max(map(len, rows)), min(row_of)
    padded = tuple((*row, *("0",) * (width - len(row))) for row in rows)
    return Table(name, first, tuple(row_of.get(place, 0) for place in range(first, max(row_of) + 1)), padded)


def _bits(number: str) -> str:
    """Return an int whose bits are those of a literal of C."""
    return str(int(np.float32(number[:-1]).view(np.int32))) if number.endswith("f") else number


def _numbers(variant: Variant, table: Table | None) -> Iterator[str]:
    """Yield what a shared function takes after all other arguments."""
    for column, declared in enumerate(variant.declared, 1):
        assert table is not None, "shared functions have numbers"
        yield table.number(column, declared.partition(" ")[0])


def _tiles(tiles: int | None, table: Table | None) -> str:
    if tiles is not None:
        return str(tiles)
    assert table is not None, "shared functions have numbers"
    return table.number(0, "int")


def _arguments(
    function: Function, places: Sequence[int], launches: Sequence[Launch], bindings: Mapping[Place, str]
) -> Iterator[str]:
    """Yield an expression for each pointer of a function that is launched at several places."""
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
