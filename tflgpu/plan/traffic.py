"""The bytes that a kernel has to move, by which its bandwidth is counted."""

from __future__ import annotations

from tflgpu.plan.plan import Plan, PlannedKernel


def traffic(plan: Plan, planned: PlannedKernel) -> int:
    """Bytes of all that a kernel reads, once each, and of what it writes.

    Memory never sees less, but for kernels that read a part of a tensor (a slice, a lookup): they count as if they read
    all of it. Of what a kernel reads twice, or from a cache, the count knows nothing.
    """
    tensors = (a.tensor for a in planned.arguments if a.tensor is not None and not a.written)
    read = {(plan.roots[t], plan.shifts.get(t, 0)): t for t in tensors}
    constants = {id(a.data): a.bytes for a in planned.arguments if a.data is not None}
    activations = (*read.values(), planned.node.output)
    return sum(plan.storage[t].content_bytes for t in activations) + sum(constants.values())
