"""The last stage of code generation: launches one by one, or one kernel, or a few, that go through all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, groupby, pairwise
from typing import NamedTuple

import numpy as np

from tflgpu.artifact.executable import CACHE_LINE, Claiming, Executable, Launch, Persistent, PersistentRun, Slot
from tflgpu.codegen.environment import AWAIT_INPUTS, rendered
from tflgpu.codegen.functions import Function, Pointer, Variant, variants
from tflgpu.codegen.render import KernelSource
from tflgpu.errors import internal_faults
from tflgpu.plan.program_parts import find_parts, find_runs
from tflgpu.target import Target

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


PERSISTENT = "persistent"  # how the names of the kernels begin

# Bytes of constant memory for the numbers of shared functions. Devices have 64 KiB, and all kernels become one program.
MOST_NUMBERS = 1 << 15

# Parameters of functions that wait for other work-groups where they say so, if `waits`, and how they do.
WAITING = ("Meeting meeting", "bool waits")
AWAITING = f"#define {AWAIT_INPUTS} if (waits) await_others(meeting);"


def render_persistent(
    source: KernelSource, executable: Executable, *, ptx: bool, most_numbers: int = MOST_NUMBERS
) -> tuple[str, Persistent]:
    """Return all launches as one kernel or a few: their program, and what the executor must know of it.

    Args:
        source: The rendered functions.
        executable: The buffers and launches of these functions.
        ptx: Whether the device's compiler accepts NVIDIA's inline assembly.
        most_numbers: Bytes of constant memory for the numbers of shared functions.

    Raises:
        ValueError: Kernels have different local sizes.
    """
    order = in_intervals(executable)
    launches = [executable.launches[number] for number in order]
    local_size = max((launch.local_size for launch in launches), default=1)
    if any(launch.local_size not in (1, local_size) for launch in launches):
        raise ValueError("kernels of one family share their local size, or are of one work-item")
    within_levels = {place for place, (one, other) in enumerate(pairwise(launches)) if one.interval == other.interval}
    shared = variants(source.functions)
    runs = _runs(launches, shared)
    tables = {
        name: numbers_of(shared, launches, places, f"numbers_{part}")
        for part, (name, places) in enumerate(_places(runs).items())
    }
    if sum(table.bytes for table in tables.values() if table) > most_numbers:
        shared = {function.name: Variant(function) for function in source.functions}
        runs, tables = _runs(launches, shared), {}
    persistent = Persistent(runs, local_size, tuple(order), clock=ptx)
    kernels, parts_of = list[str](), dict[str, set[int]]()
    for part, (name, places) in enumerate(_places(runs).items()):
        for place in places:
            parts_of.setdefault(shared[launches[place].function].function.name, set()).add(part)
        repeats = name in persistent.repeated
        table = tables.get(name)
        kernel = rendered(
            "executor/persistent",
            function=name,
            ranges=executable.ranges,
            apart=executable.apart,
            bindings=binding_names(executable),
            results=executable.results,
            local_size=local_size,
            workspace=max((f.workspace for f in source.functions), default=0),
            places=("begin", "end") if repeats else (min(places, default=0), len(places) + min(places, default=0)),
            repeats=repeats,
            cases=calls(
                shared, executable, launches, places, local_size, "meeting, waits && tile == first_tile", table
            ),
            within_levels=sorted(within_levels.intersection(places)),
        )
        kernels.append((table.text if table else "") + kernel)
    compiled = {variant.function.name: variant for variant in shared.values()}
    functions = {
        name: f"static inline {variant.function.tile(*WAITING, *variant.declared)}"
        for name, variant in compiled.items()
    }
    if len(kernels) > 1:
        kernels = [for_parts([part], kernel) for part, kernel in enumerate(kernels)]
        functions = {name: for_parts(sorted(parts_of[name]), text) for name, text in functions.items()}
    barrier = rendered("executor/grid_barrier", ptx=ptx)
    grid = rendered("ptx/grid_ptx" if ptx else "executor/grid")
    return "\n".join((AWAITING, source.prelude, grid, barrier, *functions.values(), *kernels)), persistent


def for_parts(parts: Sequence[int], text: str) -> str:
    """Return the text of a program for some of its parts, where parts are compiled alone: PART is the number of one.

    Args:
        parts: Numbers of parts that have the text, besides the whole program.
        text: C.
    """
    return "\n".join((f"#if !defined PART{''.join(f' || PART == {part}' for part in parts)}", text, "#endif"))


def _places(runs: Sequence[PersistentRun]) -> dict[str, list[int]]:
    """Return the places of the launches that kernels run, by the kernels' names."""
    places: dict[str, list[int]] = {}
    for run in runs:
        places.setdefault(run.function, []).extend(range(run.begin, run.end))
    return places


def _runs(launches: Sequence[Launch], shared: Mapping[str, Variant]) -> tuple[PersistentRun, ...]:
    """Return the launches of kernels."""
    by_interval = groupby(launches, key=lambda launch: launch.interval)
    runs = find_runs([[shared[launch.function].function.name for launch in own] for _, own in by_interval])
    names = {run.kernel: f"{PERSISTENT}_{run.kernel}" if run.kernel else PERSISTENT for run in runs}
    return tuple(PersistentRun(names[run.kernel], run.places.start, run.places.stop) for run in runs)


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


@internal_faults("rendering the program")
def assemble(source: KernelSource, executable: Executable, target: Target) -> tuple[str, Executable]:
    """Return the program of linked kernels for the target's executor, and how it is launched.

    Launches one by one are the way also where the target's is not worthwhile, or one buffer cannot have all memory.

    Args:
        source: The rendered functions.
        executable: The buffers and launches of these functions.
        target: The device; names the executor.
    """
    if target.executor == "launch" or not executable.launches:
        return _launches(source, executable)
    if target.executor == "claiming":
        if not can_claim(executable):
            return _launches(source, executable)
        text, claiming = render_claiming(source, executable)
        return text, replace(executable, claiming=claiming)
    text, persistent = render_persistent(source, executable, ptx=target.ptx)
    if executable.ranges[-1] + persistent.clock_bytes > target.limits.allocation_bytes:
        return _launches(source, executable)
    return text, replace(executable, persistent=persistent)


def _launches(source: KernelSource, executable: Executable) -> tuple[str, Executable]:
    """Return a program of a kernel for each function. Many of them are in parts of about as much text each."""
    parts = find_parts([len(function.source) for function in source.functions])
    number = len(set(parts))
    if number < 2:
        return source.text, executable
    texts = (for_parts([part], function.source) for part, function in zip(parts, source.functions, strict=True))
    return "\n".join((source.prelude, *texts)), replace(executable, launch_parts=number)
