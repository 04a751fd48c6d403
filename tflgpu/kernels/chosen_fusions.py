"""Which nodes become one: what a fusion proposes, and what a chooser says of that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from tflgpu.graph.ir import Graph, Node, TensorId
from tflgpu.kernels.kernel import Storage
from tflgpu.kernels.request import Chooser, Request, first_ranked
from tflgpu.kernels.rewriting import Planning
from tflgpu.target import Target

ENDLESS = 1e9  # cycles between two kernels, so that one is faster than any two

Fuse = Callable[[Graph, Mapping[TensorId, Storage], Target], Graph]


def fuse_nodes(fuse: Fuse, planning: Planning) -> Planning:
    """With one node for several wherever a kernel computes them faster so; it keeps the tensor that it writes.

    The chooser decides on the fusions that the cost model proposes; one that measures is also asked about those that
    seem to be slower.
    """
    graph, storage, target, chooser = planning.graph, planning.storage, planning.fusing_target, planning.chooser
    proposed = fuse(graph, storage, target)
    if chooser is first_ranked:
        return replace(planning, graph=proposed)
    against = dict(planning.decisions)
    graph = _chosen(graph, proposed, storage, target, chooser, against, seems_faster=True)
    costs = replace(target.cost_model, launch_latency=ENDLESS, interval_latency=ENDLESS)
    possible = fuse(graph, storage, replace(target, cost_model=costs))
    graph = _chosen(graph, possible, storage, target, chooser, against, seems_faster=False)
    return replace(planning, graph=graph, decisions=against)


def _chosen(
    apart: Graph,
    fused: Graph,
    storage: Mapping[TensorId, Storage],
    target: Target,
    chooser: Chooser,
    against: dict[tuple[int, ...], bool],
    *,
    seems_faster: bool,
) -> Graph:
    """``fused``, with the nodes of ``apart`` where the chooser prefers them. Adds to ``against``."""
    groups, nodes = fused_groups(apart, fused), list[Node]()
    for node in fused.nodes:
        parts = groups.get(node.output, ())
        is_one = not parts or Request(node, fused, storage, target, chooser, parts).chooses_fusion(seems_faster)
        nodes += (node,) if is_one else parts
        if parts and is_one != seems_faster:
            against.setdefault(node.sources, is_one)
    return fused.with_nodes(nodes, apart.tensors.values())


def fused_groups(apart: Graph, fused: Graph) -> dict[TensorId, tuple[Node, ...]]:
    """The nodes of ``apart``, in order, whose place each node takes that only ``fused`` has, by what it writes."""
    last: dict[TensorId, TensorId] = {}  # of its group, what a node's last one writes
    for node in reversed(apart.nodes):
        if node.output not in fused.producer:
            (last[node.output],) = {last[reader.output] for reader in apart.consumers[node.output]}
        elif fused.producer[node.output] is not node:
            last[node.output] = node.output
    groups: dict[TensorId, tuple[Node, ...]] = {}
    for node in apart.nodes:
        if node.output in last:
            groups[last[node.output]] = (*groups.get(last[node.output], ()), node)
    return groups
