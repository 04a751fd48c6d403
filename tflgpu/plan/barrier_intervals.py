"""Barrier intervals: which kernels of a plan may run at the same time, without a barrier between them."""

from __future__ import annotations

from dataclasses import dataclass

from tflgpu.graph.ir import TensorId
from tflgpu.plan.plan import Plan

ARENA: TensorId = -1


@dataclass(frozen=True)
class _Use:
    """Bytes ``begin`` to ``end`` of the arena, or of a tensor outside of it, as a kernel of ``interval`` uses them."""

    memory: TensorId
    begin: int
    end: int
    written: bool
    interval: int

    def excludes(self, other: _Use) -> bool:
        """Whether the two uses must not be at the same time."""
        overlap = self.memory == other.memory and self.begin < other.end and other.begin < self.end
        return overlap and (self.written or other.written)


def barrier_intervals(plan: Plan) -> tuple[int, ...]:
    """Each kernel's barrier interval: the least number above those of earlier kernels that it conflicts with.

    Two kernels conflict if one writes bytes that the other uses. The bytes may be those of one tensor, or of two
    tensors to which the arena gives them one after the other. Kernels of one interval are therefore independent.
    """
    uses: list[_Use] = []
    result = []
    for planned in plan.kernels:
        own = [_use(plan, a.tensor, a.written) for a in planned.arguments if a.tensor is not None]
        interval = max((1 + earlier.interval for earlier in uses if any(map(earlier.excludes, own))), default=0)
        uses += [_Use(u.memory, u.begin, u.end, u.written, interval) for u in own]
        result.append(interval)
    return tuple(result)


def _use(plan: Plan, tensor: TensorId, written: bool) -> _Use:
    root = plan.roots[tensor]
    offset = plan.offsets.get(root)
    memory, begin = (root, 0) if offset is None else (ARENA, offset)
    begin += plan.shifts.get(tensor, 0)
    return _Use(memory, begin, begin + plan.storage[tensor].content_bytes, written, interval=0)
