"""The bytes that a kernel has to move; its bandwidth is counted by them."""

from __future__ import annotations

from tflgpu.plan.plan import Plan, PlannedKernel


def traffic(plan: Plan, planned: PlannedKernel) -> int:
    """Return the bytes of all that a kernel reads, once each, and of all that it writes.

    A kernel that reads only some elements of a tensor (a slice, a lookup) counts as if it read all. What a kernel reads
    twice counts once, wherever it comes from.

    Args:
        plan: The kernel's.
        planned: The kernel.
    """
    tensors = (a.tensor for a in planned.arguments if a.tensor is not None and not a.written)
    read = {(plan.roots[t], plan.shifts.get(t, 0)): t for t in tensors}
    constants = {id(a.data): a.bytes for a in planned.arguments if a.data is not None}
    activations = (*read.values(), planned.node.output)
    return sum(plan.storage[t].content_bytes for t in activations) + sum(constants.values())
