"""Remove nodes that change nothing, slices of slices, and nodes that depend on constants only."""

from __future__ import annotations

from dataclasses import replace

from tflgpu.graph.ir import Node, joint_sources
from tflgpu.graph.layout import keeps_bytes
from tflgpu.graph.rewrite_rules import Built, Draft, Match, Rule, Rules, op
from tflgpu.ops.arithmetic.reduction import Reduce
from tflgpu.ops.evaluate import value_of
from tflgpu.ops.movement.shaping import AxisMap, Rearrange


def _fold(match: Match) -> Built:
    """Replace an elementwise or data-moving node of constants by a constant."""
    graph, node = match.graph, match.node
    output = graph[node.output]
    value = value_of(node, [graph[i] for i in node.inputs], output)
    if value is None:
        return None
    constant = graph.new.add(replace(output, data=value)).id
    # A kernel has to write what is needed after the last node.
    return [Node("map", (constant,), node.output, sources=node.sources)] if node.output in graph.wanted else constant


def _computes(graph: Draft, node: Node) -> bool:
    return node.kind != "map" or bool(node.epilogue) or node.output not in graph.wanted


fold_constants = Rules((Rule("fold_constants", op(where=_computes), _fold),))


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


def _is_slice(graph: Draft, node: Node) -> bool:
    """Whether a node takes some elements along each axis."""
    assert isinstance(node.attributes, Rearrange)
    return node.attributes.fill is None and all(m.axis == i for i, m in enumerate(node.attributes.axes))


def _join_slices(match: Match) -> Built:
    inner, outer = match["inner"], match.node
    assert isinstance(inner.attributes, Rearrange) and isinstance(outer.attributes, Rearrange)
    axes = tuple(
        AxisMap(i, m.start + m.step * n.start, m.step * n.step)
        for i, (m, n) in enumerate(zip(inner.attributes.axes, outer.attributes.axes, strict=True))
    )
    return [replace(outer, inputs=inner.inputs, attributes=Rearrange(axes), sources=joint_sources(inner, outer))]


# Identities are removed, and reshapes are marked that leave every byte in place.
simplify = Rules(
    (
        Rule(
            "remove_identity",
            op("map|reshape|rearrange|reduce", plain=True, where=_is_identity),
            lambda match: match.node.inputs[0],
        ),
        Rule(
            "join_slices",
            op("rearrange", op("rearrange", name="inner", plain=True, alone=True, where=_is_slice), where=_is_slice),
            _join_slices,
        ),
        Rule(
            "reshape_in_place",
            op("reshape", where=_keeps_bytes),
            lambda match: [replace(match.node, in_place=True)],
        ),
    )
)
