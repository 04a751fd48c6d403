"""One memory for all activations: greedy by size, each tensor in the lowest gap its lifetime leaves free.

It is one buffer, or several parts of equal size where a device has no buffers as large; no tensor is in two parts.

The algorithm is "Greedy by Size for Offset Calculation" of Pisarchyk and Lee, "Efficient Memory Management for Deep
Neural Net Inference" (2020), arXiv:2001.03288.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

ALIGNMENT = 256  # at least the base address alignment of every OpenCL device known

Bytes = NDArray[np.int64]


@dataclass(frozen=True)
class Lifetime:
    """``size`` bytes that must stay from kernel ``first`` to kernel ``last``, both included."""

    size: int
    first: int
    last: int


def aligned(size: int) -> int:
    """Return the least multiple of the alignment that holds a number of bytes.

    Args:
        size: Bytes.
    """
    return -(-size // ALIGNMENT) * ALIGNMENT


def part_bytes(lifetimes: Mapping[int, Lifetime], most: int) -> int:
    """Return the size of one part of an arena, in bytes.

    Args:
        lifetimes: Sizes of the tensors; a tensor must be in one part, so that a part is no smaller than the largest.
        most: The greatest size of a buffer.
    """
    largest = max((aligned(life.size) for life in lifetimes.values()), default=0)
    return max(most // ALIGNMENT * ALIGNMENT, largest, ALIGNMENT)


def place(lifetimes: Mapping[int, Lifetime], part: int) -> tuple[dict[int, int], int]:
    """Place tensors in an arena so that no two that live at the same time overlap, the largest first.

    Args:
        lifetimes: By tensor its size, and the first and the last kernel that use it.
        part: Bytes of a part; no tensor lies in two parts.

    Returns:
        The offset of each tensor, and the size of the arena, in bytes.
    """
    order = sorted(lifetimes.items(), key=lambda item: -item[1].size)
    first, last = (np.array([getattr(life, name) for _, life in order], np.int64) for name in ("first", "last"))
    begins, ends = np.zeros((2, len(order)), np.int64)
    for number, (_, life) in enumerate(order):
        together = np.flatnonzero((first[:number] <= life.last) & (life.first <= last[:number]))
        begins[number] = _lowest_gap(begins[together], ends[together], aligned(life.size), part)
        ends[number] = begins[number] + aligned(life.size)
    return {key: int(begin) for (key, _), begin in zip(order, begins, strict=True)}, int(max(ends, default=0))


def _lowest_gap(begins: Bytes, ends: Bytes, size: int, part: int) -> int:
    """Return the lowest offset at which ``size`` bytes overlap none of these ranges and lie in one part."""
    order = np.argsort(begins)
    free_from = np.maximum.accumulate(np.append(0, ends[order]))
    in_two = free_from // part != (free_from + size - 1) // part
    starts = np.where(in_two, -(-free_from // part) * part, free_from)
    gaps = np.flatnonzero(begins[order] - starts[:-1] >= size)
    return int(starts[gaps[0] if gaps.size else -1])


def lower_bound(lifetimes: Mapping[int, Lifetime]) -> int:
    """Return the largest sum of bytes alive at one kernel: no placement can be smaller.

    Args:
        lifetimes: By tensor its size, and the first and the last kernel that use it.
    """
    changes = np.zeros(2 + max((life.last for life in lifetimes.values()), default=0), np.int64)
    for life in lifetimes.values():
        changes[life.first] += aligned(life.size)
        changes[life.last + 1] -= aligned(life.size)
    return int(np.cumsum(changes).max())
