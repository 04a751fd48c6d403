"""Graph and target -> plan: the passes for the device, then kernels and memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tflgpu.errors import internal_faults
from tflgpu.graph.ir import Graph, TensorId
from tflgpu.kernels.planning import Planning
from tflgpu.kernels.request import Chooser, first_ranked
from tflgpu.passes.device import planned
from tflgpu.plan.kernels import planned_kernel
from tflgpu.plan.placement import placement
from tflgpu.plan.plan import Plan
from tflgpu.plan.traffic import traffic
from tflgpu.target import Target, cpu_work


@internal_faults("planning")
def make_plan(
    graph: Graph,
    target: Target,
    chooser: Chooser = first_ranked,
    group_sizes: Mapping[TensorId, int] | None = None,
    *,
    fuse: bool = True,
) -> Plan:
    """Choose storage, kernels and memory for an optimized graph, for one core if it is little work.

    chooser: of kernels' tile configurations, and of fusions. group_sizes: most work-items of a group of the kernels
    that compute some tensors, where those are fewer than the device's limit. fuse: whether a kernel may compute several
    nodes, of which it does not store all results.
    """
    planning = Planning(graph, target, chooser=chooser, group_sizes=group_sizes or {})
    plan = _make_plan(planning, fuse)
    if target.executor == "claiming" and _work(plan) < target.limits.little_work:
        return _make_plan(replace(planning, target=target.of_one_core), fuse)
    return plan


def _make_plan(planning: Planning, fuse: bool) -> Plan:
    result = planned(planning, fuse=fuse)
    graph, storage, target = result.graph, result.storage, result.target
    # A tensor without elements needs no kernel.
    computed = (node for node in graph.nodes if not node.in_place and graph[node.output].size)
    kernels = tuple(planned_kernel(node, result) for node in computed)
    places = placement(graph, kernels, storage, target)
    return Plan(**vars(places), graph=graph, target=target, kernels=kernels, storage=storage, fusions=result.decisions)


def _work(plan: Plan) -> int:
    return sum(cpu_work(planned.kernel.macs, traffic(plan, planned)) for planned in plan.kernels)
