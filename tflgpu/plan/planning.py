"""Graph and target -> plan: the passes for the device, then kernels and memory."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from tflgpu.errors import internal_faults
from tflgpu.graph.ir import Graph
from tflgpu.kernels.request import Chooser, first_ranked
from tflgpu.kernels.rewriting import Planning
from tflgpu.passes.device import planned
from tflgpu.plan.barrier_intervals import barrier_intervals
from tflgpu.plan.kernels import planned_kernel
from tflgpu.plan.placement import placement
from tflgpu.plan.plan import Plan
from tflgpu.plan.program_parts import find_runs
from tflgpu.plan.traffic import traffic
from tflgpu.target import WHOLE_PLAN, Target, cpu_work


@internal_faults("planning")
def make_plan(
    graph: Graph,
    target: Target,
    chooser: Chooser = first_ranked,
    *,
    fuse: bool = True,
) -> Plan:
    """Choose storage, kernels and memory for an optimized graph, for one core if it is little work.

    Args:
        graph: After all passes that are the same for every device.
        target: The device. The work-groups of kernels keep to its ``group_sizes``.
        chooser: Chooses tile configurations of kernels, and fusions; by default the cost model does.
        fuse: Whether a kernel may compute several nodes, of which it does not store all results.
    """
    if target.executor != "launch":
        target = target.allowed(WHOLE_PLAN)
    planning = Planning(graph, target, chooser=chooser)
    plan = _plan_within(planning, fuse)
    if target.executor == "claiming" and _work(plan) < target.limits.little_work:
        return _plan_within(replace(planning, target=target.of_one_core), fuse)
    return plan


def _plan_within(planning: Planning, fuse: bool) -> Plan:
    """Return a plan whose kernels keep to ``target.group_sizes``: the nodes of those that do not are planned anew."""
    allowed = dict(planning.target.group_sizes)
    while True:
        plan = _make_plan(planning, fuse)
        known = ((k, allowed[k.key]) for k in plan.kernels if k.key in allowed)
        too_wide = {k.node.output: size for k, size in known if k.kernel.local_size > size}
        if not too_wide:
            return plan
        planning = replace(planning, group_sizes={**planning.group_sizes, **too_wide})


def _make_plan(planning: Planning, fuse: bool) -> Plan:
    result = planned(planning, fuse=fuse)
    graph, storage, target = result.graph, result.storage, result.target
    # A tensor without elements needs no kernel.
    computed = (node for node in graph.nodes if not node.in_place and graph[node.output].size)
    kernels = tuple(planned_kernel(node, result) for node in computed)

    def placed(by_levels: bool) -> Plan:
        ordered, places = placement(graph, kernels, storage, target, by_levels=by_levels)
        found = vars(places) | {"graph": graph, "target": target, "kernels": ordered, "storage": storage}
        return Plan(**found, fusions=result.decisions)

    orders = (True, False) if target.overlaps_kernels else (False,)
    return min(map(placed, orders), key=_waiting_cycles)


def _waiting_cycles(plan: Plan) -> float:
    """Cycles between the kernels of a plan for the persistent executor: barriers, and launches of its parts."""
    if not plan.target.overlaps_kernels:
        return 0.0
    by_interval = defaultdict[int, list[str]](list)
    for interval, kernel in zip(barrier_intervals(plan), plan.kernels, strict=True):
        by_interval[interval].append(kernel.key)
    costs, runs = plan.target.cost_model, find_runs([own for _, own in sorted(by_interval.items())])
    return len(by_interval) * costs.interval_latency + len(runs) * costs.launch_latency


def _work(plan: Plan) -> int:
    return sum(cpu_work(planned.kernel.macs, traffic(plan, planned)) for planned in plan.kernels)
