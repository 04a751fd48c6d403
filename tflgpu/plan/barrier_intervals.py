"""Which kernels of a plan may run at the same time."""

from __future__ import annotations

from dataclasses import dataclass

from tflgpu.graph.ir import TensorId
from tflgpu.plan.plan import Plan

ARENA: TensorId = -1


@dataclass(frozen=True)
class _Use:
    """Bytes ``begin`` to ``end`` of the arena, or of a tensor outside of it, as a kernel of ``level`` uses them."""

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
    """The level of each kernel: the least above those of all earlier kernels that it must not run beside.

    It must not where one of the two writes bytes that the other uses, be it as a tensor's value or because the arena
    gives them to one tensor after another. Kernels of one level are therefore independent.
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
