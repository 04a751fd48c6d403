"""Graph and target -> plan: the passes for the device, then kernels and memory."""

from __future__ import annotations

import sys
from dataclasses import replace

from tflgpu.errors import internal_faults
from tflgpu.graph.ir import Graph
from tflgpu.kernels.request import Chooser, first_ranked
from tflgpu.kernels.rewriting import Planning
from tflgpu.passes.device import planned
from tflgpu.plan.kernels import planned_kernel
from tflgpu.plan.placement import placement
from tflgpu.plan.plan import Plan
from tflgpu.plan.traffic import traffic
from tflgpu.target import WHOLE_PROGRAM, Target, cpu_work


@internal_faults("planning")
def make_plan(
    graph: Graph,
    target: Target,
    chooser: Chooser = first_ranked,
    *,
    fuse: bool = True,
) -> Plan:
    """Choose storage, kernels and memory for an optimized graph, for one core if it is little work.

    The groups of its kernels keep to ``target.group_sizes``. chooser: of kernels' tile configurations, and of fusions.
    fuse: whether a kernel may compute several nodes, of which it does not store all results.
    """
    if target.executor != "launch":
        target = target.allowed(WHOLE_PROGRAM)
    planning = Planning(graph, target, chooser=chooser)
    plan = _make_plan(planning, fuse)
    # A fused node has to do with groups as narrow as any kernel's: which it will be is not known before.
    while (narrowest := min((k.most_items for k in plan.kernels), default=sys.maxsize)) < _fused_items(planning):
        planning = replace(planning, fused_items=narrowest)
        plan = _make_plan(planning, fuse)
    if target.executor == "claiming" and _work(plan) < target.limits.little_work:
        return _make_plan(replace(planning, target=target.of_one_core), fuse)
    return plan


def _fused_items(planning: Planning) -> int:
    return planning.fusing_target.limits.work_group_size


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
