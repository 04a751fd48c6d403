"""Which nodes become one: what the fusions of a target's architectures propose, and what a chooser says of that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tflgpu.graph.ir import Graph, Node, TensorId
from tflgpu.kernels.architecture import FUSIONS
from tflgpu.kernels.kernel import Storage
from tflgpu.kernels.request import Chooser, Request, first_ranked
from tflgpu.target import Target

ENDLESS = 1e9  # cycles between two kernels, so that one is faster than any two

Decisions = dict[tuple[int, ...], bool]
"""By the model's operators of a group of nodes, whether one kernel computes them."""


def fuse_nodes(
    graph: Graph, storage: Mapping[TensorId, Storage], target: Target, chooser: Chooser = first_ranked
) -> tuple[Graph, Decisions]:
    """The graph with one node for several wherever an architecture of ``target`` computes them faster so.

    storage: of every activation; nodes that are made keep the tensors that they write. chooser: decides on the fusions
    that the cost model proposes; one that measures is also asked about those that seem to be slower. The second result
    is what it has decided against the cost model.
    """
    against: Decisions = {}
    for architecture, fuse in FUSIONS:
        if not architecture.includes(target):
            continue
        proposed = fuse(graph, storage, target)
        if chooser is first_ranked:
            graph = proposed
            continue
        graph = _chosen(graph, proposed, storage, target, chooser, against, seems_faster=True)
        costs = replace(target.cost_model, launch_latency=ENDLESS, interval_latency=ENDLESS)
        possible = fuse(graph, storage, replace(target, cost_model=costs))
        graph = _chosen(graph, possible, storage, target, chooser, against, seems_faster=False)
    return graph, against


def _chosen(
    apart: Graph,
    fused: Graph,
    storage: Mapping[TensorId, Storage],
    target: Target,
    chooser: Chooser,
    against: Decisions,
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
