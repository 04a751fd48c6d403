"""Remove nodes that change nothing."""

from __future__ import annotations

from dataclasses import replace

from tflgpu.graph.ir import Node
from tflgpu.graph.layout import keeps_bytes
from tflgpu.graph.rewrite_rules import Draft, Rule, Rules, op
from tflgpu.ops.arithmetic.reduction import Reduce
from tflgpu.ops.movement.shaping import AxisMap, Rearrange


def _is_identity(graph: Draft, node: Node) -> bool:
    source, output = graph[node.inputs[0]], graph[node.output]
    # Other tensors are views of the source then, or are computed where it lies: it must be stored as the output would.
    if (source.shape, source.dtype) != (output.shape, output.dtype) or node.output in graph.wanted:
        return False
    match node.attributes:
        case Rearrange(axes):
            return all(m == AxisMap(i) for i, m in enumerate(axes))
        case Reduce("mean", axes):
            return all(graph[node.inputs[0]].shape[a] == 1 for a in axes)
    return node.kind in ("map", "reshape")


def _keeps_bytes(graph: Draft, node: Node) -> bool:
    return not node.in_place and keeps_bytes(graph[node.inputs[0]].shape, graph[node.output].shape)


# Identities are removed, and reshapes are marked that leave every byte in place.
simplify = Rules(
    (
        Rule(
            "remove_identity",
            op("map|reshape|rearrange|reduce", plain=True, where=_is_identity),
            lambda match: match.node.inputs[0],
        ),
        Rule(
            "reshape_in_place",
            op("reshape", where=_keeps_bytes),
            lambda match: [replace(match.node, in_place=True)],
        ),
    )
)
