"""Barrier intervals: which kernels of a plan may run at the same time, without a barrier between them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from tflgpu.graph.ir import TensorId
from tflgpu.kernels.kernel import Storage
from tflgpu.plan.plan import Plan, PlannedKernel

ARENA: TensorId = -1

NEVER = -1  # an interval before all


def barrier_intervals(plan: Plan) -> tuple[int, ...]:
    """Each kernel's barrier interval: the least number above those of earlier kernels that it conflicts with.

    Two kernels conflict if one writes bytes that the other uses. The bytes may be those of one tensor, or of two
    tensors to which the arena gives them one after the other. Kernels of one interval are therefore independent.
    """
    return intervals(
        memory_uses(planned, plan.roots, plan.shifts, plan.storage, plan.offsets) for planned in plan.kernels
    )


class Use(NamedTuple):
    """Bytes ``begin`` to ``end`` of the arena, or of a tensor outside of it, as a kernel uses them."""

    memory: TensorId
    begin: int
    end: int
    written: bool


def memory_uses(
    planned: PlannedKernel,
    roots: Mapping[TensorId, TensorId],
    shifts: Mapping[TensorId, int],
    storage: Mapping[TensorId, Storage],
    offsets: Mapping[TensorId, int],
) -> Iterator[Use]:
    """Yield the memory that a kernel reads and writes. The mappings are those of :class:`tflgpu.plan.plan.Placement`.

    Args:
        planned: The kernel.
        roots: The tensor whose memory each tensor has.
        shifts: Bytes from the begin of that memory.
        storage: Types and sizes.
        offsets: Places in the arena; a tensor without one is a memory of its own.
    """
    for argument in planned.arguments:
        if argument.tensor is not None:
            root = roots[argument.tensor]
            memory, begin = (ARENA, offsets[root]) if root in offsets else (root, 0)
            begin += shifts.get(argument.tensor, 0)
            yield Use(memory, begin, begin + storage[argument.tensor].content_bytes, argument.written)


def intervals(kernels: Iterable[Iterable[Use]]) -> tuple[int, ...]:
    """Return the barrier interval of each kernel, from 0 on: kernels of one interval share no memory that one writes.

    Args:
        kernels: The uses of memory of each kernel, in order of execution.
    """
    memories: dict[TensorId, _Memory] = defaultdict(_Memory)
    result = []
    for used in kernels:
        touched = [use for use in used if use.begin < use.end]
        interval = 1 + max((memories[use.memory].latest_conflict(use) for use in touched), default=NEVER)
        for use in touched:
            memories[use.memory].record(use, interval)
        result.append(interval)
    return tuple(result)


class _Memory:
    """Ranges of bytes one after the other, and in which intervals kernels used each.

    A write comes after all other uses of its bytes, so that these need not be known any more.
    """

    def __init__(self) -> None:
        self._begins = [0]  # a range ends where the next one begins
        self._written = [NEVER]
        self._read = [NEVER]

    def latest_conflict(self, use: Use) -> int:
        """Return the latest interval with a kernel that must not run at the same time."""
        ranges = slice(bisect_right(self._begins, use.begin) - 1, bisect_left(self._begins, use.end))
        latest = max(self._written[ranges])
        return max(latest, *self._read[ranges]) if use.written else latest

    def record(self, use: Use, interval: int) -> None:
        ranges = slice(self._cut(use.begin), self._cut(use.end))
        if use.written:
            self._begins[ranges], self._written[ranges], self._read[ranges] = [use.begin], [interval], [NEVER]
        else:
            self._read[ranges] = [max(interval, earlier) for earlier in self._read[ranges]]

    def _cut(self, place: int) -> int:
        """Return the number of the range that begins at ``place``; afterwards there is one."""
        number = bisect_left(self._begins, place)
        if number == len(self._begins) or self._begins[number] != place:
            for values in (self._written, self._read):
                values.insert(number, values[number - 1])
            self._begins.insert(number, place)
        return number
