"""Concatenation elimination: inputs are computed at the place that they have in the result, and no kernel copies them.

In PHWC4 an input is one range of the result's bytes if all axes outside of the concatenated one have size 1. That is so
for the first batch axis, and for the channels of a single image if each input has whole slices.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from tflgpu.graph.ir import Graph, Node, TensorId
from tflgpu.kernels.kernel import Storage
from tflgpu.kernels.rewriting import Planning
from tflgpu.passes.fuse import fusable, fused
from tflgpu.passes.nest_concatenations import is_contiguous


@dataclass(frozen=True)
class Place:
    """Where a tensor lies: ``offset`` bytes after the beginning of the tensor ``whole``."""

    whole: TensorId
    offset: int = 0


def concatenate_in_place(planning: Planning) -> Planning:
    """Mark each concatenation as in place whose inputs can be computed inside its result.

    The kernel of another one computes the functions of its result as well.
    """
    graph, storage = planning.graph, planning.storage
    inputs_inside: set[TensorId] = set()
    nodes: list[Node] = []
    copied: dict[TensorId, Node] = {}
    for node in graph.nodes:
        if is_contiguous(graph, node) and all(
            _can_eliminate(graph, storage, inputs_inside, node, t) for t in node.inputs
        ):
            inputs_inside.update(node.inputs)
            node = replace(node, in_place=True)
        elif is_contiguous(graph, node):
            reader = graph.sole_consumer(node.output)
            is_map = reader is not None and reader.kind == "map" and reader.output not in copied
            if reader is not None and is_map and fusable(graph, node, node.output, reader):
                copied[reader.output] = node
                continue
        if node.output in copied:
            node = fused(copied[node.output], node, node.inputs.index(copied[node.output].output))
        nodes.append(node)
    return planning.with_nodes(nodes)


def input_places(graph: Graph, storage: Mapping[TensorId, Storage]) -> dict[TensorId, Place]:
    """Return where the inputs of every eliminated concatenation lie.

    Args:
        graph: With concatenations that are in place.
        storage: The storage of its tensors.
    """
    places: dict[TensorId, Place] = {}
    for node in reversed(graph.nodes):  # a result that is itself an input has its place by then
        if node.in_place and node.kind == "concatenate":
            whole, offset = places.get(node.output, Place(node.output)), 0
            for tensor in node.inputs:
                places[tensor] = replace(whole, offset=whole.offset + offset)
                offset += storage[tensor].content_bytes
    return places


def _can_eliminate(
    graph: Graph, storage: Mapping[TensorId, Storage], inputs_inside: Collection[TensorId], node: Node, tensor: TensorId
) -> bool:
    """Whether a kernel computes ``tensor`` in the storage of the result, and both are inner tensors of the graph."""
    producer, output = graph.producer.get(tensor), node.output
    return (
        producer is not None
        and (not producer.in_place or producer.kind == "concatenate")
        and tensor not in inputs_inside
        and node.inputs.count(tensor) == 1
        and not {tensor, output} & graph.wanted
        and storage[tensor].form == storage[output].form
        and not storage[tensor].linear
        and not storage[output].linear
        and graph[tensor].size > 0
    )
