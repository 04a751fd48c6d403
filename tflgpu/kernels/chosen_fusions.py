"""Which nodes become one: what a fusion proposes, and what a chooser says of that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from tflgpu.graph.ir import Graph, Node, TensorId
from tflgpu.kernels.kernel import Storage
from tflgpu.kernels.request import Request, first_ranked
from tflgpu.kernels.rewriting import Planning
from tflgpu.target import Target

ENDLESS = 1e9  # cycles between two kernels, so that one is faster than any two

Fuse = Callable[[Graph, Mapping[TensorId, Storage], Target], Graph]


def fuse_nodes(fuse: Fuse, planning: Planning) -> Planning:
    """Put one node for several wherever a kernel computes them faster so; it keeps the tensor that it writes.

    The chooser decides on the fusions that the cost model proposes; one that measures is also asked about those that
    seem to be slower.
    """
    target = planning.fusing_target
    proposed = fuse(planning.graph, planning.storage, target)
    if planning.chooser is first_ranked:
        return replace(planning, graph=proposed)
    planning = _chosen(planning, proposed, seems_faster=True)
    costs = replace(target.cost_model, launch_latency=ENDLESS, interval_latency=ENDLESS)
    possible = fuse(planning.graph, planning.storage, replace(target, cost_model=costs))
    return _chosen(planning, possible, seems_faster=False)


def _chosen(planning: Planning, fused: Graph, *, seems_faster: bool) -> Planning:
    """Take ``fused``, but for the nodes that the chooser prefers as they are."""
    apart, target, against = planning.graph, planning.fusing_target, dict(planning.decisions)
    kept = dict[TensorId, tuple[Node, ...]]()
    for output, parts in fused_groups(apart, fused).items():
        node = fused.producer[output]
        is_one = Request(node, fused, planning.storage, target, planning.chooser, parts).chooses_fusion(seems_faster)
        if not is_one:
            kept[output] = parts
        if is_one != seems_faster:
            against.setdefault(node.sources, is_one)
    graph = fused.with_replaced(kept, apart.tensors.values())
    return replace(planning, graph=graph, decisions=against)


def fused_groups(apart: Graph, fused: Graph) -> dict[TensorId, tuple[Node, ...]]:
    """Return the nodes whose place each fused node takes, by what that writes.

    Args:
        apart: The graph before fusions; the nodes of a group are in its order.
        fused: The same graph after them.
    """
    last: dict[TensorId, TensorId] = {}  # of its group, what a node's last one writes
    for node in reversed(apart.nodes):
        if node.output not in fused.producer:
            (last[node.output],) = {last[reader.output] for reader in apart.consumers[node.output]}
        elif fused.producer[node.output] is not node:
            last[node.output] = node.output
    groups: dict[TensorId, tuple[Node, ...]] = {}
    for tensor in reversed(last):
        groups[last[tensor]] = (*groups.get(last[tensor], ()), apart.producer[tensor])
    return groups
