"""Work-groups that take the steps of a kernel in any order, in memory as weak as OpenCL C 2.0 allows it to be.

Each atomic word keeps what was written to it, in order. A load that is not ordered may find any of these, but none
from before what its work-item knows; it knows what it has seen, and by acquire what another one had known when it
released. Ordinary memory must not need more than that: an access that does not know of the last write, or a write that
does not know of the last reads, is a race, and an error, whatever the schedule.
"""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tests.schedules.kernel_c import Instruction, Program

Pointer = tuple[Any, int]  # a region and a place in it
View = bytes  # for each location the number of its last write that is known, and for each work-item its last read

PLACES = 250
NOTHING: View = bytes(PLACES)
OPERATORS = {
    "+": operator.add,
    "-": operator.sub,
    "|": operator.or_,
    "&": operator.and_,
    "^": operator.xor,
}


class WrongScheduleError(Exception):
    """A fault that must not happen under any schedule."""


def join(one: View, other: View) -> View:
    """The knowledge of both."""
    if one == other or other == NOTHING:
        return one
    return np.maximum(np.frombuffer(one, np.uint8), np.frombuffer(other, np.uint8)).tobytes()


def is_local(pointer: Pointer) -> bool:
    """Whether this is memory of a work-group."""
    region, _ = pointer
    return isinstance(region, tuple) and str(region[0]).startswith("local")


class Item(NamedTuple):
    """A work-item. See the identity functions of OpenCL C; ``first`` is the launch's global offset.

    Attributes:
        known: What it may rely on.
        seen: What an acquire fence would make it know, from loads that were not ordered.
        fenced: What it releases by a store that is not ordered.
    """

    launch: int
    group: int
    groups: int
    item: int
    size: int
    first: int
    program: Program
    place: int
    registers: tuple[Any, ...]
    known: View = NOTHING
    seen: View = NOTHING
    fenced: View = NOTHING

    @property
    def next(self) -> Instruction:
        """The access that it is about to make."""
        return self.program.instructions[self.place]

    @property
    def key(self) -> object:
        """The facts on which its future depends, with the memory."""
        return self.place, self.registers, self.known, self.seen, self.fenced


class _Write(NamedTuple):
    """A value of an atomic word, the number of its write, and what who acquires it knows."""

    number: int
    value: int
    released: View


class Cell(NamedTuple):
    """Ordinary memory: its value, the number of the last write, and of the last read of each reader."""

    value: Any = None
    number: int = 0
    reads: tuple[tuple[int, int], ...] = ()  # by place in views


class Places:
    """Numbers of locations in views. Those of a work-group's local memory are known apart."""

    def __init__(self) -> None:
        self._numbers: dict[object, int] = {}
        self.local = bytearray(PLACES)

    def of(self, location: object, *, local: bool = False) -> int:
        """The number of a location."""
        if location not in self._numbers:
            assert len(self._numbers) < PLACES, "views are too short for this program"
            self.local[len(self._numbers)] = local
            self._numbers[location] = len(self._numbers)
        return self._numbers[location]


class State:
    """All work-items and all memory. Its methods change it; :meth:`copy` takes little."""

    def __init__(self, atomic: Iterable[object], visit: Callable[[Accesses, int, int], None]) -> None:
        """Memory of zeros.

        Args:
            atomic: The regions whose ordinary accesses are those of volatile words, which may race with others.
            visit: What a call ``visit(launch, tile)`` of the program does.
        """
        self.items: list[Item] = []
        self.words: dict[Pointer, tuple[_Write, ...]] = {}
        self.cells: dict[Pointer, Cell] = {}
        self.places, self.atomic, self.visit = Places(), frozenset(atomic), visit
        self._leaving = set[int]()  # work-items that are about to go on from a barrier

    def copy(self) -> State:
        """A state with the same future."""
        made = State.__new__(State)
        made.items, made.words, made.cells = self.items.copy(), self.words.copy(), self.cells.copy()
        made.places, made.atomic, made.visit, made._leaving = self.places, self.atomic, self.visit, set()
        return made

    @property
    def key(self) -> object:
        """Equal for states with the same future."""
        return tuple(item.key for item in self.items), frozenset(self.words.items()), frozenset(self.cells.items())

    def launch(
        self,
        program: Program,
        arguments: dict[str, Any],
        groups: int,
        size: int = 1,
        first: int = 0,
        known: View = NOTHING,
    ) -> list[int]:
        """Begin a kernel, whose work-items know what ``known`` has. Returns their numbers."""
        registers = [0] * program.registers
        for name, register in program.parameters.items():
            registers[register] = arguments.get(name, (name, 0))
        number, begin = len({item.launch for item in self.items}), len(self.items)
        for group in range(groups):
            for each in range(size):
                self.items.append(Item(number, group, groups, each, size, first, program, -1, tuple(registers), known))
                self._go_on(len(self.items) - 1)
        return [*range(begin, len(self.items))]

    def settled(self) -> State:
        """The memory once all items have ended and a queue has waited for them: whoever comes knows all of it."""
        made = State(self.atomic, self.visit)
        made.words = {pointer: (_Write(0, writes[-1].value, NOTHING),) for pointer, writes in self.words.items()}
        made.cells = {p: Cell(cell.value) for p, cell in self.cells.items() if not is_local(p)}
        return made

    def value(self, pointer: Pointer) -> int:
        """The last value of an atomic word."""
        return self._writes(pointer)[-1].value

    def set(self, pointer: Pointer, value: int) -> None:
        """Set an atomic word before anything begins."""
        self.words[pointer] = (_Write(0, value, NOTHING),)

    def choices(self) -> Iterator[tuple[int, int]]:
        """Each item that can go on, with the number of each write that its access may find."""
        for number, item in enumerate(self.items):
            kind = item.next.kind
            if kind in ("end", "barrier"):
                continue
            for found in range(len(self._found(item)) if kind in ("load", "plain load", "exchange") else 1):
                yield number, found

    def _found(self, item: Item) -> Sequence[_Write]:
        """The writes that a load may find, the last one first."""
        pointer = self._pointer(item)
        place, writes = self.places.of(pointer), self._writes(pointer)
        found = [write for write in writes if write.number >= item.known[place]]
        if item.next.kind == "exchange":  # one that fails may find an older value, but not the expected one
            expected = item.next.functions[1](item.registers, item)
            found = [write for write in found[:-1] if write.value != expected] + found[-1:]
        return found[::-1]

    def _writes(self, pointer: Pointer) -> tuple[_Write, ...]:
        return self.words.get(pointer) or (_Write(0, 0, NOTHING),)

    def _pointer(self, item: Item) -> Pointer:
        found: Pointer = item.next.functions[0](item.registers, item)
        return found

    def step(self, number: int, choice: int = 0) -> None:
        """Let an item make its access, and go on to the next one."""
        item = self.items[number]
        instruction, result = item.next, None
        kind, order = instruction.kind, instruction.order
        if kind == "mem_fence":
            known = join(item.known, item.seen)
            item = item._replace(known=known, fenced=known)
        else:
            pointer = self._pointer(item)
            place = self.places.of(pointer)
            found = self._found(item)[choice] if kind != "store" else self._writes(pointer)[-1]
            values = [function(item.registers, item) for function in instruction.functions[1:]]
            written = None
            if kind in ("store", "plain store"):
                written = values[0]
            elif kind == "update":
                found = self._writes(pointer)[-1]
                written = OPERATORS[values[1]](found.value, values[0]) & 0xFFFFFFFF
            elif kind == "exchange" and found == self._writes(pointer)[-1] and found.value == values[0]:
                written = values[1]
            result = found.value
            if kind not in ("store", "plain store"):
                item = self._loaded(item, found, place, "a" in order)
            if written is not None:
                item = self._stored(
                    item, pointer, place, written, order, found if kind in ("update", "exchange") else None
                )
        self.items[number] = self._with_result(item, instruction, result)
        self._go_on(number)

    @staticmethod
    def _loaded(item: Item, found: _Write, place: int, acquires: bool) -> Item:
        known = bytearray(join(item.known, found.released) if acquires else item.known)
        known[place] = max(known[place], found.number)
        return item._replace(known=bytes(known), seen=join(item.seen, found.released))

    def _stored(
        self, item: Item, pointer: Pointer, place: int, value: int, order: str, replaced: _Write | None
    ) -> Item:
        writes = self._writes(pointer)
        if pointer in self.cells and any(item.known[reader] < read for reader, read in self.cells[pointer].reads):
            raise WrongScheduleError(f"{pointer} is written while another work-item may still read it")
        known = bytearray(item.known)
        known[place] = number = writes[-1].number + 1
        item = item._replace(known=bytes(known))
        released = bytearray(item.known if "r" in order else item.fenced)
        released[place] = number
        made = _Write(number, value, join(bytes(released), replaced.released) if replaced else bytes(released))
        least = min((each.known[place] for each in self.items if each.next.kind != "end"), default=number)
        self.words[pointer] = (*(write for write in writes if write.number >= least), made)
        return item

    @staticmethod
    def _with_result(item: Item, instruction: Instruction, result: Any) -> Item:
        registers = list(item.registers)
        if instruction.result is not None:
            registers[instruction.result] = result
        for register in instruction.dead:
            registers[register] = 0
        return item._replace(registers=tuple(registers))

    def _go_on(self, number: int) -> None:
        """Run an item up to its next access of an atomic word. All else must not depend on the schedule."""
        item = self.items[number]
        registers, place, code = [*item.registers], item.place + 1, item.program.instructions
        while True:
            instruction = code[place]
            kind, functions = instruction.kind, instruction.functions
            if kind == "set":
                assert instruction.result is not None
                registers[instruction.result] = functions[0](registers, item)
            elif kind == "branch":
                if not functions[0](registers, item):
                    place = instruction.target
                    continue
            else:
                item = self.items[number] = item._replace(registers=tuple(registers), place=place)
                if not self._is_ordinary(item):
                    break
                accesses = Accesses(self, number)
                result = self._ordinary(accesses, instruction, [f(registers, item) for f in functions])
                item = self.items[number] = self._with_result(self.items[number], instruction, result)
                registers = [*item.registers]
            place += 1
        if item.next.kind in ("barrier", "end"):
            self._meet(item)

    def _is_ordinary(self, item: Item) -> bool:
        kind = item.next.kind
        return kind == "visit" or (kind in ("plain load", "plain store") and self._pointer(item)[0] not in self.atomic)

    def _ordinary(self, accesses: Accesses, instruction: Instruction, values: list[Any]) -> Any:
        if instruction.kind == "visit":
            return self.visit(accesses, *values)
        if instruction.kind == "plain load":
            return accesses.read(values[0])
        return accesses.write(*values)

    def _meet(self, item: Item) -> None:
        """Let the items of a group go on from a barrier once all are there. They then know what each of them knew."""
        group = [n for n, each in enumerate(self.items) if (each.launch, each.group) == (item.launch, item.group)]
        if len(group) < item.size or self._leaving.intersection(group):
            return  # not all of them have begun, or gone on from the last barrier
        places = {self.items[n].place for n in group}
        waiting = [n for n in group if self.items[n].next.kind == "barrier"]
        if not waiting or any(self.items[n].next.kind not in ("barrier", "end") for n in group):
            return
        if len(places) > 1:
            raise WrongScheduleError("work-items of a group wait at different barriers, or have ended")
        (flags,) = {self.items[n].next.functions[0]((), item) for n in group}
        known = NOTHING
        for n in group:
            known = join(known, self.items[n].known)
        for n in group:
            self.items[n] = self.items[n]._replace(known=self._ordered(self.items[n].known, known, flags))
        self._leaving.update(group)
        for n in group:
            self._leaving.discard(n)
            self._go_on(n)

    def _ordered(self, own: View, known: View, flags: frozenset[str]) -> View:
        """The knowledge of an item after a barrier that orders these memories."""
        ordered = (("local" if local else "global") in flags for local in self.places.local)
        return bytes(k if o else b for o, k, b in zip(ordered, known, own, strict=True))

    def run(self, seed: int | None = None) -> None:
        """Take steps until all items have ended: drawn ones, or those of the first item that can go on."""
        draw = random.Random(seed)
        while choices := list(self.choices()):
            self.step(*(choices[0] if seed is None else draw.choice(choices)))


class Accesses:
    """Ordinary accesses of one work-item."""

    def __init__(self, state: State, number: int) -> None:
        self._state, self._number = state, number

    @property
    def item(self) -> Item:
        """Whose they are."""
        return self._state.items[self._number]

    def gave_up(self, interval: int) -> bool:
        """Whether its group has given up at a barrier. Then it may go on in that interval, but no further."""
        group = self.item.launch, self.item.group
        met, last = ("local met", *group), ("local end", *group)
        before = self._state.cells.get((last, 0), Cell(interval)).value
        if before != interval:
            raise WrongScheduleError(f"a work-group that gave up in interval {before} goes on in interval {interval}")
        if self._state.cells.get((met, 0), Cell(1)).value:
            return False
        self._state.cells[last, 0] = Cell(interval)
        return True

    def read(self, pointer: Any) -> Any:
        """The value of a cell. Raises WrongScheduleError if another item may write it at the same time."""
        cell = self._known_cell(pointer)
        reader = self._place(("reads", pointer, self._number))
        reads = dict(cell.reads)
        reads[reader] = reads.get(reader, 0) + 1
        self._state.cells[pointer] = cell._replace(reads=tuple(sorted(reads.items())))
        self._know(reader, reads[reader])
        return cell.value

    def write(self, pointer: Any, value: Any) -> None:
        """Set a cell. Raises WrongScheduleError if another item may access it at the same time."""
        cell, known = self._known_cell(pointer), self.item.known
        if any(known[reader] < number for reader, number in cell.reads):
            raise WrongScheduleError(f"{pointer} is written while another work-item may still read it")
        self._state.cells[pointer] = cell._replace(value=value, number=cell.number + 1)
        self._know(self._place(pointer), cell.number + 1)

    def _place(self, location: Any) -> int:
        return self._state.places.of(location, local=is_local(location[1] if location[0] == "reads" else location))

    def _known_cell(self, pointer: Any) -> Cell:
        cell = self._state.cells.get(pointer, Cell())
        if pointer in self._state.words:
            number, value, _ = self._state.words[pointer][-1]
            cell = cell._replace(value=value, number=number)
        if self.item.known[self._place(pointer)] < cell.number:
            raise WrongScheduleError(f"{pointer} is accessed while another work-item may still write it")
        return cell

    def _know(self, place: int, number: int) -> None:
        known = bytearray(self.item.known)
        known[place] = number
        self._state.items[self._number] = self.item._replace(known=bytes(known))


def explore(state: State, at_end: Callable[[State], None], most: int) -> int:
    """Go through all schedules. Returns the number of states.

    Args:
        state: The first one.
        at_end: Judges a state in which all items have ended.
        most: How many states are to be enough.
    """
    seen, pending = set[object](), [state]
    while pending:
        current = pending.pop()
        choices = list(current.choices())
        if not choices:
            at_end(current)
        for choice in choices:
            following = current.copy()
            following.step(*choice)
            key = hash(following.key)
            if key not in seen:
                seen.add(key)
                pending.append(following)
        assert len(seen) <= most, f"more than {most} states"
    return len(seen)


def memory_after(state: State, is_whole: Callable[[State], bool], most: int = 100_000) -> State:
    """The memory after all schedules, which must be the same. is_whole: whether it is to be counted at an end."""
    found: dict[object, State] = {}

    def note(end: State) -> None:
        if is_whole(end):
            after = end.settled()
            found[after.key] = after

    explore(state, note, most)
    if len(found) != 1:
        raise WrongScheduleError(f"{len(found)} different states of memory are left")
    return found.popitem()[1]
