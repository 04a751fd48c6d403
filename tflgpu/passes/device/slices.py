"""Slice elimination: kernels read a slice where it lies in the tensor that it is a part of, and no kernel copies it.

In PHWC4 a slice is one range of bytes if all axes outside of the sliced one have size 1: some images of a batch or rows
of a matrix, or whole slices of the channels of a single image.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from tflgpu.graph.ir import Graph, Node, TensorId, roots
from tflgpu.graph.layout import LANES, Geometry
from tflgpu.kernels.kernel import Storage
from tflgpu.kernels.rewriting import Planning
from tflgpu.ops.movement.shaping import AxisMap, Factor, Rearrange, Strided
from tflgpu.passes.device.concatenations import Place
from tflgpu.target import ITEM_BYTES

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
