"""Concatenation elimination: inputs are computed at the place that they have in the result, and no kernel copies them.

In PHWC4 an input is one range of the result's bytes if all axes outside of the concatenated one have size 1. That is so
for the first batch axis, and for the channels of a single image if each input has whole slices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tflgpu.graph.ir import Graph, Node, TensorId
from tflgpu.graph.rewrite_rules import Built, Draft, Match, Rule, op
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

    def put_inside(match: Match) -> Built:
        node = match.node
        fits = all(_can_eliminate(match.graph, planning.storage, node, tensor) for tensor in node.inputs)
        return [replace(node, in_place=True)] if fits and not node.in_place else None

    def copy(match: Match) -> Built:
        """Compute a map in the kernel of the first concatenation that it alone reads."""
        graph, node = match.graph, match.node
        read = (graph.producer.get(tensor) for tensor in node.inputs)
        copied = [n for n in read if n and is_contiguous(graph, n) and fusable(graph, n, n.output, node)]
        first = min(copied, key=lambda each: graph.place(each.output), default=None)
        return [fused(first, node, node.inputs.index(first.output))] if first is not None else None

    inside = Rule("put_inside", op("concatenate", where=is_contiguous), put_inside)
    return planning.rewritten(inside, Rule("copy_inputs", op("map"), copy))


def input_places(graph: Graph, storage: Mapping[TensorId, Storage]) -> dict[TensorId, Place]:
    """Return where the inputs of every eliminated concatenation lie.

    Args:
        graph: With concatenations that are in place.
        storage: The storage of its tensors.
    """
    places: dict[TensorId, Place] = {}
    for node in reversed(graph.of_kind("concatenate")):  # a result that is itself an input has its place by then
        if node.in_place:
            whole, offset = places.get(node.output, Place(node.output)), 0
            for tensor in node.inputs:
                places[tensor] = replace(whole, offset=whole.offset + offset)
                offset += storage[tensor].content_bytes
    return places


def _can_eliminate(graph: Draft, storage: Mapping[TensorId, Storage], node: Node, tensor: TensorId) -> bool:
    """Whether a kernel computes ``tensor`` in the storage of the result, and both are inner tensors of the graph."""
    producer, output = graph.producer.get(tensor), node.output
    return (
        producer is not None
        and (not producer.in_place or producer.kind == "concatenate")
        and not any(n.in_place and n.kind == "concatenate" for n in graph.consumers[tensor])
        and node.inputs.count(tensor) == 1
        and not {tensor, output} & graph.wanted
        and storage[tensor].form == storage[output].form
        and not storage[tensor].linear
        and not storage[output].linear
        and graph[tensor].size > 0
    )
