"""Concatenation and slice elimination: parts are computed and read where they lie in the whole; nothing is copied.

In PHWC4 an input is one range of the result's bytes if all axes outside of the concatenated one have size 1. That is so
for the first batch axis, and for the channels of a single image if each input has whole slices.

In PHWC4 a slice is one range of bytes if all axes outside of the sliced one have size 1: some images of a batch or rows
of a matrix, or whole slices of the channels of a single image.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from tflgpu.graph.ir import Graph, Node, TensorId, roots
from tflgpu.graph.layout import LANES, Geometry
from tflgpu.graph.rewrite_rules import Built, Draft, Match, Rule, op
from tflgpu.kernels.kernel import Storage
from tflgpu.kernels.rewriting import Planning
from tflgpu.ops.movement.shaping import AxisMap, Factor, Rearrange, Strided
from tflgpu.passes.fuse import fusable, fused
from tflgpu.passes.slice_concatenations import is_contiguous
from tflgpu.target import ITEM_BYTES


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


# Kernels load and copy as many bytes at once where the place within a tensor allows it.
ALIGNED_BYTES = 16

# Kinds of nodes that may be slices.
MOVEMENTS = ("rearrange", "strided")


def slice_in_place(planning: Planning) -> Planning:
    """Mark each slice of an inner tensor as in place that is one range of its bytes."""
    graph, storage = planning.graph, planning.storage
    root = roots(graph)
    kept = {root[t] for t in (*graph.given, *graph.wanted)}
    inner = (n for n in graph.of_kind(*MOVEMENTS) if not {n.output, root.get(n.inputs[0])} & kept)
    slices = (n for n in inner if not graph[n.inputs[0]].is_constant and _offset(graph, storage, n) is not None)
    return planning.with_graph(graph.with_replaced({n.output: (replace(n, in_place=True),) for n in slices}))


def slice_places(graph: Graph, storage: Mapping[TensorId, Storage]) -> dict[TensorId, Place]:
    """Return where eliminated slices lie in the tensors that they are a part of.

    Args:
        graph: With slices that are in place.
        storage: The storage of its tensors.
    """
    places: dict[TensorId, Place] = {}
    for node in graph.of_kind(*MOVEMENTS):
        if node.in_place:
            offset = _offset(graph, storage, node)
            assert offset is not None
            places[node.output] = Place(node.inputs[0], offset)
    return places


def _offset(graph: Graph, storage: Mapping[TensorId, Storage], node: Node) -> int | None:
    """Return the byte at which the elements of a node's result begin in its input; None if it is no slice, or has
    gaps."""
    source, output = storage[node.inputs[0]], storage[node.output]
    if node.epilogue or source.linear or output.linear or source.form != output.form or not graph[node.output].size:
        return None
    if isinstance(node.attributes, Strided):
        vec4s = _first_of_rows(node.attributes, source.geometry, output.geometry)
    else:
        assert isinstance(node.attributes, Rearrange)
        vec4s = _first_of_slice(node.attributes, source.geometry, output.geometry)
    if vec4s is None:
        return None
    offset = vec4s * LANES * ITEM_BYTES[source.type]
    return offset if offset % ALIGNED_BYTES == 0 else None


def _first_of_rows(attributes: Strided, source: Geometry, output: Geometry) -> int | None:
    """Return the first vec4 of elements that follow each other in row-major order, if both tensors lie so in memory."""
    size, start = prod(output.shape), attributes.start
    are_rows = all(g.plane == 1 and g.channels % LANES == 0 for g in (source, output))
    follows = attributes.factors in ((Factor(size, 1),), () if size == 1 else None)
    return start // LANES if are_rows and follows and start % LANES == 0 else None


def _first_of_slice(attributes: Rearrange, source: Geometry, output: Geometry) -> int | None:
    """Return the first vec4 of a slice along one axis, if those outside of it have size 1."""
    old, new = source.shape, output.shape
    moved = [i for i, m in enumerate(attributes.axes) if m != AxisMap(i) or i >= len(new) or old[i] != new[i]]
    if len(old) != len(new) or len(moved) != 1 or attributes.fill is not None:
        return None
    (axis,) = moved
    start = attributes.axes[axis].start
    if attributes.axes[axis] != AxisMap(axis, start) or not 0 <= start <= old[axis] - new[axis]:
        return None
    if axis < len(source.batch_axes):
        return start * source.axis_strides[axis] if prod(old[:axis]) == 1 else None
    is_whole = start % LANES == 0 and (new[axis] % LANES == 0 or start + new[axis] == old[axis])
    return start // LANES * source.plane if axis == len(old) - 1 and source.batch == 1 and is_whole else None
