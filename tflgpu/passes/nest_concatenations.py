"""Concatenations of what is one tensor already: all parts of another tensor, or all inputs of another concatenation.

A growing concatenation begins with all of the one before it, so that all can have the memory of the last one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tflgpu.graph.ir import Node, TensorId
from tflgpu.graph.layout import LANES, Geometry
from tflgpu.graph.rewrite_rules import AnyGraph, Built, Draft, Match, Rule, Rules, op
from tflgpu.ops.movement.shaping import Concatenate, Rearrange, slice_start


def _join(match: Match) -> Built:
    """Read a tensor in place of neighbouring slices that are all of it."""
    node, attributes = match.node, match.node.attributes
    assert isinstance(attributes, Concatenate)
    inputs = _joined(match.graph, node.inputs, attributes.axis)
    return None if inputs == node.inputs else [replace(node, inputs=inputs)]


def _nest(match: Match) -> Built:
    """Read the longest earlier concatenation with whose inputs this one begins, as those of a DenseNet do."""
    graph, node = match.graph, match.node
    earlier = [each for each in graph.consumers[node.inputs[0]] if _begins_with(graph, node, each)]
    if not earlier:
        return None
    before = max(earlier, key=lambda each: (len(each.inputs), -graph.place(each.output)))
    return [replace(node, inputs=(before.output, *node.inputs[len(before.inputs) :]))]


def _begins_with(graph: Draft, node: Node, other: Node) -> bool:
    """Whether another concatenation is computed before ``node``, of its first inputs."""
    count = len(other.inputs)
    is_part = 1 < count < len(node.inputs) and other.inputs == node.inputs[:count]
    is_alike = other.attributes == node.attributes and not other.epilogue
    return is_part and is_alike and graph.place(other.output) < graph.place(node.output)


_PLAIN = op("concatenate", plain=True)

nest_concatenations = Rules((Rule("join_slices", _PLAIN, _join), Rule("nest_concatenations", _PLAIN, _nest)))


def _joined(graph: Draft, inputs: Sequence[TensorId], axis: int) -> tuple[TensorId, ...]:
    """Return the inputs, with a tensor in place of slices along ``axis`` that follow each other and are all of it."""
    result: list[TensorId] = []
    place = 0
    while place < len(inputs):
        source, end = _slice(graph, inputs[place], axis), 0
        count = 0
        while source is not None and place + count < len(inputs):
            found = _slice(graph, inputs[place + count], axis)
            if found is None or found != (source[0], end):
                break
            end += graph[inputs[place + count]].shape[axis]
            count += 1
        is_all = source is not None and count > 0 and end == graph[source[0]].shape[axis]
        result.append(source[0] if is_all and source is not None else inputs[place])
        place += count if is_all else 1
    return tuple(result)


def _slice(graph: Draft, tensor: TensorId, axis: int) -> tuple[TensorId, int] | None:
    """Return the tensor of which a slice along ``axis`` is a part, and where it begins; None if it is none."""
    node = graph.producer.get(tensor)
    if node is None or not isinstance(node.attributes, Rearrange) or node.epilogue or node.attributes.fill is not None:
        return None
    start = slice_start(node.attributes, graph[node.inputs[0]].shape, graph[tensor].shape, axis)
    return None if start is None else (node.inputs[0], start)


def is_contiguous(graph: AnyGraph, node: Node) -> bool:
    """Whether a node only puts its inputs one after the other, and does so in memory as well.

    Args:
        graph: The node's graph.
        node: Any node.
    """
    if not isinstance(node.attributes, Concatenate) or node.epilogue:
        return False
    axis, shape = node.attributes.axis, graph[node.output].shape
    batch_axes = Geometry(shape).batch_axes
    if axis < len(batch_axes):
        return all(extent == 1 for extent in shape[:axis])
    sizes = [graph[t].shape[axis] for t in node.inputs]
    return (
        axis == len(shape) - 1
        and all(extent == 1 for extent in batch_axes)
        and all(size % LANES == 0 for size in sizes[:-1])
    )
