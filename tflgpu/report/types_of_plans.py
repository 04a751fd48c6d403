"""Reports of what plans store in float although others are halves, and of what they compute with integers, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from tflgpu.kernels.architecture import lowerings
from tflgpu.kernels.rewriting import Planning
from tflgpu.plan import Plan
from tflgpu.plan.plan import PlannedKernel
from tflgpu.report.half_precision import FloatStorage, FloatTensor
from tflgpu.report.report import FloatProducts, IntegerReport


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


def integer_report(plans: Sequence[Plan]) -> IntegerReport:
    """Return how much of a quantized model is computed and stored in integers, and why not the rest.

    Args:
        plans: The plans of all its partitions on the device.
    """
    reasons = Counter[str | None]()
    operators, conversions = set[int](), 0
    for plan in plans:
        for planned in plan.kernels:
            if planned.kernel.macs:
                reasons[_reason(plan, planned)] += 1
            sides = [[*_are_integers(plan, planned.node.inputs)], [*_are_integers(plan, [planned.node.output])]]
            if any(map(any, sides)):
                operators |= {*planned.node.sources}
                conversions += any(sides[0]) != any(sides[1]) and bool(sides[0])
    products = reasons.pop(None, 0)
    float_products = tuple(FloatProducts(str(reason), count) for reason, count in reasons.most_common())
    return IntegerReport(plans[0].target.integer_unit, products, float_products, len(operators), conversions)


def _reason(plan: Plan, planned: PlannedKernel) -> str | None:
    """Why a kernel with products multiplies floats; None if it multiplies integers."""
    node, target = planned.node, plan.target
    if target.integer_unit is None:
        return "no integer unit of the device is used"
    obstacle = next((each.obstacle for each in lowerings(node.kind, target) if each.obstacle is not None), None)
    if obstacle is None:
        return f"no kernel of integers for {node.kind}"
    return obstacle(Planning(plan.graph, target, plan.storage).request(node))


def _are_integers(plan: Plan, tensors: Sequence[int]) -> Iterator[bool]:
    """Return for each activation whether it is stored as integers of a grid."""
    return (plan.storage[t].grid is not None for t in tensors if t in plan.storage)
