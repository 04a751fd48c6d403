"""Concatenations that cost nothing: their inputs are computed where the result has them.

In PHWC4 the coordinates of an axis lie one behind the other if no axis outside of it has more than one coordinate:
those of the first batch axis, and the channels of a single image in whole slices.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from tflgpu.graph.ir import Graph, Node, TensorId
from tflgpu.graph.layout import LANES, Geometry
from tflgpu.kernels.kernel import Storage
from tflgpu.ops.movement.shaping import Concatenate

ELIMINATED = "eliminated_concatenation"  # the kind of a concatenation without a kernel


@dataclass(frozen=True)
class Place:
    """Where a tensor lies: ``offset`` bytes behind the beginning of the tensor ``whole``."""

    whole: TensorId
    offset: int = 0


def eliminate_concatenations(graph: Graph, storage: Mapping[TensorId, Storage]) -> Graph:
    """Make a ``join`` of each concatenation whose inputs can be parts of its result from the beginning."""
    parts: set[TensorId] = set()
    nodes: list[Node] = []
    for node in graph.nodes:
        if _is_contiguous(graph, node) and all(_can_eliminate(graph, storage, parts, node, t) for t in node.inputs):
            parts.update(node.inputs)
            node = replace(node, kind=ELIMINATED)
        nodes.append(node)
    return graph.with_nodes(nodes)


def input_places(graph: Graph, storage: Mapping[TensorId, Storage]) -> dict[TensorId, Place]:
    """Where the inputs of every ``join`` lie."""
    places: dict[TensorId, Place] = {}
    for node in reversed(graph.nodes):  # what is a part itself has its place by then
        if node.kind == ELIMINATED:
            whole, offset = places.get(node.output, Place(node.output)), 0
            for part in node.inputs:
                places[part] = replace(whole, offset=whole.offset + offset)
                offset += storage[part].content_bytes
    return places


def _is_contiguous(graph: Graph, node: Node) -> bool:
    """Whether a node does nothing but put its inputs one behind the other, in memory as well."""
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


def _can_eliminate(
    graph: Graph, storage: Mapping[TensorId, Storage], parts: Collection[TensorId], node: Node, part: TensorId
) -> bool:
    """Whether a kernel computes ``part`` in the format of the result, and only kernels see either."""
    producer, output = graph.producer.get(part), node.output
    return (
        producer is not None
        and producer.kind != "view"
        and part not in parts
        and node.inputs.count(part) == 1
        and not {part, output} & graph.wanted
        and storage[part].type == storage[output].type
        and not storage[part].linear
        and not storage[output].linear
        and graph[part].size > 0
    )
