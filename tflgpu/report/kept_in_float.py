"""Which tensors of a plan in half precision stay in float, why, and what that costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tflgpu.plan import Plan
from tflgpu.report.half_precision import FloatStorage, FloatTensor


def kept_in_float(plans: Sequence[Plan]) -> FloatStorage | None:
    """Return the tensors that stay in float in plans that store in half.

    Args:
        plans: The plans of all partitions on the device.

    Returns:
        The tensors in order of execution; None if no plan stores in half.
    """
    halves = [plan for plan in plans if plan.target.storage == "half"]
    if not halves:
        return None
    total = sum(p.constant_bytes for p in halves)
    total += sum(p.storage[t].content_bytes for p in halves for t in set(p.roots.values()))
    return FloatStorage(tuple(tensor for plan in halves for tensor in _kept(plan)), total)


def _kept(plan: Plan) -> Iterator[FloatTensor]:
    graph, counted = plan.graph, set[int]()
    for node in graph.nodes:
        for tensor in map(graph.__getitem__, (node.output, *node.inputs)):
            root = plan.roots.get(tensor.id, tensor.id)
            if not tensor.kept_for or root in counted:
                continue
            counted.add(root)
            is_stored = tensor.id in plan.storage
            if not is_stored or plan.storage[tensor.id].type == "float":
                size = plan.storage[tensor.id].content_bytes // 2 if is_stored else 2 * tensor.size
                yield FloatTensor(tensor.name, node.sources, tensor.kept_for, size)
