"""The launches of an executable as calls in one kernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tflgpu.artifact.executable import Executable, Launch, Slot
from tflgpu.codegen.functions import Pointer
from tflgpu.codegen.shared_functions import Variant

Place = tuple[int, int]  # a buffer's number, and an offset in bytes

MANY_OFFSETS = 4  # of a pointer, which a table has from this number on
MOST_OFFSET = (1 << 31) - 1  # in a table of ints


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
        """Of constant memory."""
        return 2 * len(self.rows) + 4 * sum(map(len, self.numbers))

    def number(self, column: int, kind: str) -> str:
        """A C expression of a number of the launch at ``place``. kind: its type."""
        element = f"{self.name}[{len(self.numbers[0])} * {self.name}_rows[place - {self.first}] + {column}]"
        return f"as_float({element})" if kind == "float" else element

    @property
    def text(self) -> str:
        """Its definition."""
        numbers = ", ".join(number for row in self.numbers for number in row)
        rows = ", ".join(map(str, self.rows))
        return f"__constant ushort {self.name}_rows[] = {{{rows}}};\n__constant int {self.name}[] = {{{numbers}}};\n"


def in_intervals(executable: Executable) -> list[int]:
    """The numbers of the launches in an order in which each barrier interval is in one piece."""
    launches = executable.launches
    return sorted(range(len(launches)), key=lambda number: launches[number].interval)


def binding_names(executable: Executable) -> list[str]:
    """A name for each binding that can lie in the caller's memory."""
    return [f"binding{number}" for number in executable.movable]


Grouped = dict[tuple[str, int | None], list[int]]  # places by function, and by tiles if these are no numbers of it


def calls(
    functions: Mapping[str, Variant],
    executable: Executable,
    order: Sequence[int],
    places: Sequence[int],
    local_size: int,
    last_argument: str = "",
    table: Table | None = None,
) -> list[Case]:
    """Groups of equal launches, which stand at these places of the order, in a kernel of ``local_size`` work-items.

    Only the first work-item makes calls of kernels that are of one. functions: by the names that launches have for
    them. last_argument: of every call, a C expression. table: of :func:`numbers_of`, where there are numbers.
    """
    launches = [executable.launches[number] for number in order]
    last = ("tile", "workspace", *filter(None, [last_argument]))
    alone = {functions[launch.function].function.name for launch in launches if launch.local_size < local_size}
    found = []
    for (name, tiles), own in _grouped(functions, launches, places).items():
        variant = functions[launches[own[0]].function]
        pointers = _pointers(variant, own, launches, executable, table)
        call = f"{name}_tile({', '.join((*pointers, *last, *_numbers(variant, table)))})"
        first_item = "if (get_local_id(0) == 0) " if name in alone else ""
        found.append(Case(tuple(own), _tiles(tiles, table), first_item + call, variant.function.body.awaits))
    return found


def numbers_of(
    functions: Mapping[str, Variant], executable: Executable, order: Sequence[int], places: Sequence[int], name: str
) -> Table | None:
    """The table of the numbers of launches at ``places``; None for none.

    They are the tiles, what the functions take, and offsets that a long chain of conditions would choose from.
    """
    launches = [executable.launches[number] for number in order]
    rows: dict[tuple[str, ...], int] = {}
    row_of: dict[int, int] = {}
    for own in _grouped(functions, launches, places).values():
        addressed = _addressed(own, launches, executable)
        for place in own if addressed or functions[launches[own[0]].function].names else ():
            launch = launches[place]
            offsets = (launch.arguments[i].offset for i in addressed)
            numbers = (launch.groups, *map(_bits, functions[launch.function].numbers), *offsets)
            row_of[place] = rows.setdefault(tuple(map(str, numbers)), len(rows))
    if not row_of:
        return None
    width, first = max(map(len, rows)), min(row_of)
    padded = tuple((*row, *("0",) * (width - len(row))) for row in rows)
    return Table(name, first, tuple(row_of.get(place, 0) for place in range(first, max(row_of) + 1)), padded)


def _grouped(functions: Mapping[str, Variant], launches: Sequence[Launch], places: Sequence[int]) -> Grouped:
    groups: Grouped = {}
    for place in places:
        variant = functions[launches[place].function]
        key = variant.function.name, None if variant.names else launches[place].groups
        groups.setdefault(key, []).append(place)
    return groups


def _addressed(places: Sequence[int], launches: Sequence[Launch], executable: Executable) -> list[int]:
    """The pointers, by number, for which launches of one function have many places in one buffer."""
    movable = {executable.bindings[number].place for number in executable.movable}
    found = []
    for i in range(len(launches[places[0]].arguments)):
        slots = {launches[place].arguments[i] for place in places}
        in_one = len({slot.buffer for slot in slots}) == 1 and not any(slot.place in movable for slot in slots)
        if in_one and len(slots) >= MANY_OFFSETS and max(slot.offset for slot in slots) <= MOST_OFFSET:
            found.append(i)
    return found


def _bits(number: str) -> str:
    """An int whose bits are those of a literal of C."""
    return str(int(np.float32(number[:-1]).view(np.int32))) if number.endswith("f") else number


def _numbers(variant: Variant, table: Table | None) -> Iterator[str]:
    """What a shared function takes after all other arguments."""
    for column, declared in enumerate(variant.declared, 1):
        assert table is not None, "shared functions have numbers"
        yield table.number(column, declared.partition(" ")[0])


def _tiles(tiles: int | None, table: Table | None) -> str:
    if tiles is not None:
        return str(tiles)
    assert table is not None, "shared functions have numbers"
    return table.number(0, "int")


def _pointers(
    variant: Variant, places: Sequence[int], launches: Sequence[Launch], executable: Executable, table: Table | None
) -> Iterator[str]:
    """An expression for each pointer of a function that is launched at several places."""
    bindings = {executable.bindings[number].place: f"binding{number}" for number in executable.movable}
    addressed = _addressed(places, launches, executable) if table else []
    for i, pointer in enumerate(variant.function.pointers):
        if table and i in addressed:
            column = 1 + len(variant.names) + addressed.index(i)
            buffer = launches[places[0]].arguments[i].buffer
            yield f"({pointer.plain_type})buffer{buffer} + {table.number(column, 'int')}"
            continue
        slots = {place: launches[place].arguments[i] for place in places}
        *others, last = places
        choices = (
            f"place == {p} ? {_address(pointer, slots[p], bindings)} : " for p in others if slots[p] != slots[last]
        )
        yield "".join((*choices, _address(pointer, slots[last], bindings)))


def _address(pointer: Pointer, slot: Slot, bindings: Mapping[Place, str]) -> str:
    place = bindings.get(slot.place) or f"buffer{slot.buffer} + {slot.offset}"
    return f"({pointer.plain_type}){place}"
