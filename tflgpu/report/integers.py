"""Report of what is computed with integers in a quantized model, and why the rest is not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from tflgpu.kernels.architecture import lowerings
from tflgpu.kernels.rewriting import Planning
from tflgpu.plan import Plan
from tflgpu.plan.plan import PlannedKernel
from tflgpu.report.report import FloatProducts, IntegerReport


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
