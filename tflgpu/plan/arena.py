"""One buffer for all activations: greedy by size, each tensor in the lowest gap its lifetime leaves free.

The algorithm is "Greedy by Size for Offset Calculation" of Pisarchyk and Lee, "Efficient Memory Management for Deep
Neural Net Inference" (2020), arXiv:2001.03288.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

ALIGNMENT = 256  # at least the base address alignment of every OpenCL device known


@dataclass(frozen=True)
class Lifetime:
    """``size`` bytes that must stay from kernel ``first`` to kernel ``last``, both included."""

    size: int
    first: int
    last: int

    def overlaps(self, other: Lifetime) -> bool:
        return self.first <= other.last and other.first <= self.last


def aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def place(lifetimes: Mapping[int, Lifetime]) -> tuple[dict[int, int], int]:
    """Offsets at which no two that live at the same time overlap; and the size of the arena in bytes."""
    offsets: dict[int, int] = {}
    placed: list[tuple[int, int, Lifetime]] = []  # (begin, end, lifetime), by begin
    for key, life in sorted(lifetimes.items(), key=lambda item: -item[1].size):
        offset = _lowest_gap([(b, e) for b, e, other in placed if life.overlaps(other)], aligned(life.size))
        offsets[key] = offset
        placed.append((offset, offset + aligned(life.size), life))
        placed.sort(key=lambda entry: entry[0])
    return offsets, max((end for _, end, _ in placed), default=0)


def _lowest_gap(taken: Sequence[tuple[int, int]], size: int) -> int:
    offset = 0
    for begin, end in taken:
        if begin - offset >= size:
            break
        offset = max(offset, end)
    return offset


def lower_bound(lifetimes: Mapping[int, Lifetime]) -> int:
    """The largest sum of bytes alive at one kernel: no placement can be smaller."""
    times = {life.first for life in lifetimes.values()}
    return max((sum(aligned(o.size) for o in lifetimes.values() if o.first <= t <= o.last) for t in times), default=0)
