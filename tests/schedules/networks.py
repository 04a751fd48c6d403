"""Small networks whose kernels only note what they access, in the real kernels of executors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product

from tests.schedules.machine import Accesses, Pointer, State, WrongScheduleError
from tflgpu.artifact.executable import DeviceBuffer, Executable, Launch
from tflgpu.codegen.environment import AWAIT_INPUTS, MARK
from tflgpu.codegen.functions import Function, body_of
from tflgpu.codegen.render import KernelSource

Layers = Sequence[tuple[int, ...]]  # the tiles of each launch, by barrier interval

INPUT: Pointer = ("input", 0)  # the number of the inference, which every result has


def network(
    layers: Layers, size: int = 1, *, awaits: bool = False, macs: int = 1 << 20
) -> tuple[KernelSource, Executable]:
    """Launches with a function each.

    Args:
        layers: Their tiles.
        size: Work-items of a work-group.
        awaits: Whether the functions wait for other work-groups themselves.
        macs: Of each launch.
    """
    launches, functions = list[Launch](), list[Function]()
    for interval, tiles in enumerate(layers):
        for groups in tiles:
            name = f"f{len(launches)}"
            text = f"{f'{MARK}{AWAIT_INPUTS}{MARK}' if awaits else ''} visit({len(launches)}, tile);"
            functions.append(Function(name, (), body_of(text), 0, size, False, "ulong"))
            launches.append(Launch("", name, groups, size, (), (), macs, 4, interval))
    executable = Executable((DeviceBuffer(64),), tuple(launches), (), ())
    return KernelSource("", tuple(functions), tuple(f.name for f in functions)), executable


# The host's part, as launches of their own: it gives the input of a run, and takes its results.
GIVE, TAKE = 1000, 1001


def visits(layers: Layers) -> Callable[[Accesses, int, int], None]:
    """The visit of a tile: it reads all results of the interval before, and writes its own over those of two before.

    Each work-item of a group writes a part of it.
    """
    launches = [(interval, n) for interval, tiles in enumerate(layers) for n in range(len(tiles))]

    def visit(accesses: Accesses, launch: int, tile: int) -> None:
        if launch == GIVE:
            accesses.write(INPUT, tile)
            return
        if launch == TAKE:
            for place in _results(layers, 1):
                if accesses.read(place) != (tile, len(layers) - 1):
                    raise WrongScheduleError(f"run {tile} is over without {place}")
            return
        (interval, n), item = launches[launch], accesses.item
        if not 0 <= tile < layers[interval][n]:
            raise WrongScheduleError(f"launch {launch} has no tile {tile}")
        if accesses.gave_up(interval):
            return
        runs = {accesses.read(INPUT) or 0} if interval == 0 else set[object]()
        for earlier, tiles in enumerate(layers[interval - 1] if interval else ()):
            for part in ((t, each) for t in range(tiles) for each in range(item.size)):
                run, computed = accesses.read(_place(interval - 1, earlier, *part)) or (None, None)
                runs.add(run if computed == interval - 1 else None)
        if len(runs) > 1 or None in runs:
            raise WrongScheduleError(f"tile {tile} of launch {launch} is computed before its inputs are")
        result = *runs, interval
        place = _place(interval, n, tile, item.item)
        if accesses.read(place) == result:
            raise WrongScheduleError(f"tile {tile} of launch {launch} is computed twice")
        accesses.write(place, result)

    return visit


def is_complete(state: State, layers: Layers, size: int = 1, run: int = 0) -> bool:
    """Whether the last interval has its results of an inference."""
    cells = map(state.cells.get, _results(layers, size))
    return all(cell is not None and cell.value == (run, len(layers) - 1) for cell in cells)


def _results(layers: Layers, size: int) -> Iterator[Pointer]:
    """The places of what the last interval computes."""
    for n, tiles in enumerate(layers[-1]):
        for tile, item in product(range(tiles), range(size)):
            yield _place(len(layers) - 1, n, tile, item)


def _place(interval: int, launch: int, tile: int, item: int) -> Pointer:
    """Where a part of a result lies: results of every other interval share memory."""
    return ("result", interval % 2, launch, tile, item), 0
