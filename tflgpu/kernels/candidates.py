"""Candidates: the tile configurations that a kernel could have, ranked by what the target's cost model says of them.

Three things are kept apart. A kernel *enumerates* its tiles. It *counts* the work of each: tiles, k-steps, loads and
bytes. Its *demand* (:mod:`tflgpu.kernels.demand`) turns counts into cycles, on GPUs by one function for all kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from tflgpu.kernels.demand import Demanding, cycles
from tflgpu.target import Target

TileConfig = tuple[int, ...]  # the numbers that tell one tile of a kernel from the others


@dataclass(frozen=True)
class Tile:
    """The part of a result that a work-group, a warp or a work-item computes at once."""

    @property
    def config(self) -> TileConfig:
        """The parameters by which a tuner names the tile: its fields, unless a kernel says otherwise."""
        return tuple(vars(self).values())


class Work(Protocol):
    """Work of the tiles of a kernel."""

    @property
    def tiles(self) -> int:
        """How many tiles there are."""


AnyTile = TypeVar("AnyTile", bound=Tile, covariant=True)
AnyWork = TypeVar("AnyWork", bound=Work, covariant=True)


class CountedWork(Work, Demanding, Protocol):
    """Work from which the cost model tells the cycles."""


AnyCountedWork = TypeVar("AnyCountedWork", bound=CountedWork)


@dataclass(frozen=True)
class Candidate(Generic[AnyTile, AnyWork]):
    """A tile, its work, and the cycles that the kernel takes with it."""

    tile: AnyTile
    work: AnyWork
    cycles: float


def ranked(
    tiles: Iterable[AnyTile], count: Callable[[AnyTile], AnyCountedWork], target: Target
) -> list[Candidate[AnyTile, AnyCountedWork]]:
    """Return candidates, the fastest first; of equal ones the first stays first.

    Args:
        tiles: One for each candidate.
        count: Counts the work of a kernel with a tile.
        target: The device whose cycles are counted.
    """
    counted = ((tile, count(tile)) for tile in tiles)
    return sorted((Candidate(tile, work, cycles(work, target)) for tile, work in counted), key=lambda c: c.cycles)
