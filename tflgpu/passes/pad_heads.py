"""Pad the heads of attention to whole vec4s, by zeros among the weights of the layers before and behind it.

A layer of 120 channels has four heads of 30, and kernels of attention read whole vec4s. With two more outputs of weight
0 for each head, which the layer that reads the result multiplies by 0, the heads are of 32.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from math import prod

import numpy as np

from tflgpu.graph.ir import Array, Graph, Node, TensorId
from tflgpu.graph.layout import LANES, Shape, keeps_bytes
from tflgpu.graph.rewrite_rules import NewTensors
from tflgpu.kernels.fusing import kernel_inputs
from tflgpu.ops.arithmetic.matmul import MatMul
from tflgpu.ops.movement.shaping import AxisMap, Rearrange

LEAST_DEPTH = 9  # of heads that are padded: the zeros of smaller ones would be too large a part


@dataclass(frozen=True)
class Padded:
    """An axis of a tensor that consists of heads of ``depth``, and the layers that have to make them larger."""

    axis: int
    depth: int
    layers: frozenset[TensorId]


def pad_heads(graph: Graph) -> Graph:
    """Make heads of whole vec4s where all that reads them can do with zeros behind each."""
    depths = {n.output: d for n in graph.of_kind("fully_connected") if (d := _depth_of_heads(graph, n))}
    while depths:
        padded, refused = _spread(graph, depths)
        if not refused:
            products = (n for n in graph.of_kind("matmul") if set(n.inputs[:2]) <= padded.keys())
            return _rewritten(graph, depths, padded) if any(products) else graph
        depths = {layer: depth for layer, depth in depths.items() if layer not in refused}
    return graph


def _depth_of_heads(graph: Graph, layer: Node) -> int | None:
    """Return the elements of the heads that reshapes make of a layer's result, if these are no whole vec4s."""
    tensor, size = layer.output, graph[layer.output].shape[-1]
    if layer.epilogue or not all(graph[t].is_constant and graph[t].scale is None for t in layer.inputs[1:]):
        return None
    while (reader := graph.sole_consumer(tensor)) is not None and reader.kind == "reshape" and not reader.epilogue:
        tensor = reader.output
        depth = graph[tensor].shape[-1] if graph[tensor].shape else 0
        if depth != size:
            return depth if depth >= LEAST_DEPTH and depth % LANES and size % depth == 0 else None
    return None


def _spread(graph: Graph, depths: Mapping[TensorId, int]) -> tuple[dict[TensorId, Padded], set[TensorId]]:
    """Return the tensors that become larger with the results of layers, and the layers that have readers that cannot
    do so."""
    padded: dict[TensorId, Padded] = {}
    refused: set[TensorId] = set()
    for node in graph.nodes:
        given = [padded.get(t) for t in node.inputs]
        known = [p for p in given if p is not None]
        if node.output in depths and not known:
            last = len(graph[node.output].shape) - 1
            padded[node.output] = Padded(last, depths[node.output], frozenset((node.output,)))
        if not known:
            continue
        result, fits = _result(graph, node, given)
        leaves = result is not None and node.output in graph.wanted
        if not fits or leaves or node.output in depths:
            refused.update(layer for p in known for layer in p.layers)
        elif result is not None:
            padded[node.output] = result
    return padded, refused


def _result(graph: Graph, node: Node, given: list[Padded | None]) -> tuple[Padded | None, bool]:
    """Which axis of a node's result has the heads of its inputs, if any; and whether it can do with zeros in them."""
    first = given[0]
    if isinstance(node.attributes, MatMul) and not node.epilogue:
        return _of_product(graph, node, given)
    if first is None or any(given[1:]):
        return None, False
    shape, new = graph[node.inputs[0]].shape, graph[node.output].shape
    if node.kind == "fully_connected":
        weights = graph[node.inputs[1]]
        return None, weights.is_constant and weights.scale is None and first.axis == len(shape) - 1
    if node.kind == "map":
        one = kernel_inputs(node) == 1 and len(node.inputs) == 2 and graph[node.inputs[1]].size == 1
        return first, one and [op.function for op in node.epilogue] == ["mul"] and shape == new
    if node.epilogue:
        return None, False
    if node.kind == "reshape":
        inner = prod(shape[first.axis + 1 :])
        axes = [i for i, n in enumerate(new) if n % first.depth == 0 and prod(new[i + 1 :]) == inner]
        return (replace(first, axis=axes[-1]), True) if axes else (None, False)
    if isinstance(node.attributes, Rearrange) and node.attributes.fill is None:
        axis = node.attributes.axes[first.axis]
        whole = axis.axis is not None and axis == AxisMap(axis.axis) and new[axis.axis] == shape[first.axis]
        return (replace(first, axis=axis.axis), True) if whole and axis.axis is not None else (None, False)
    return None, False


def _of_product(graph: Graph, node: Node, given: list[Padded | None]) -> tuple[Padded | None, bool]:
    """Return the same of a product of matrices: heads are the terms of its sums, or its columns."""
    attributes, (left, right) = node.attributes, given[:2]
    assert isinstance(attributes, MatMul)
    ranks = [len(graph[t].shape) for t in node.inputs[:2]]
    terms = ranks[0] - (2 if attributes.adjoint_left else 1), ranks[1] - (1 if attributes.adjoint_right else 2)
    if left is not None and right is not None:
        return None, (left.axis, right.axis) == terms and left.depth == right.depth
    if right is not None and right.axis == ranks[1] - (2 if attributes.adjoint_right else 1):
        return replace(right, axis=len(graph[node.output].shape) - 1), True
    return None, False


def _rewritten(graph: Graph, depths: Mapping[TensorId, int], padded: Mapping[TensorId, Padded]) -> Graph:
    """Return the graph with larger heads."""
    new = NewTensors(graph)
    wider = [replace(graph[t], shape=_larger(graph[t].shape, p)) for t, p in padded.items()]
    shapes = {t.id: t.shape for t in wider}

    def constant(tensor: TensorId, axis: int, depth: int) -> TensorId:
        value = graph[tensor]
        assert value.data is not None
        return new.constant(_with_zeros(value.data, axis, depth))

    def rewritten(node: Node) -> Node:
        inputs = list(node.inputs)
        if node.output in depths:
            places = range(1, len(inputs))
            inputs[1:] = [constant(inputs[i], 0 if i == 1 else -1, depths[node.output]) for i in places]
        elif node.kind == "fully_connected" and inputs[0] in padded:
            inputs[1] = constant(inputs[1], 1, padded[inputs[0]].depth)
        in_place = node.in_place
        if node.kind == "reshape" and node.output in shapes:
            in_place = keeps_bytes(shapes[node.inputs[0]], shapes[node.output])
        return replace(node, inputs=tuple(inputs), in_place=in_place)

    return graph.with_each(rewritten, chain(wider, new))


def _larger(shape: Shape, padded: Padded) -> Shape:
    size = shape[padded.axis] // padded.depth * _whole(padded.depth)
    return (*shape[: padded.axis], size, *shape[padded.axis + 1 :])


def _whole(depth: int) -> int:
    return -(-depth // LANES) * LANES


def _with_zeros(data: Array, axis: int, depth: int) -> Array:
    """Return ``data`` with zeros after each ``depth`` elements along an axis."""
    axis %= data.ndim
    shape, size = data.shape, data.shape[axis] // depth
    heads = data.reshape(*shape[:axis], size, depth, *shape[axis + 1 :])
    margins: Iterable[tuple[int, int]] = ((0, _whole(depth) - depth if i == axis + 1 else 0) for i in range(heads.ndim))
    wide = np.pad(heads, tuple(margins))
    return wide.reshape(*shape[:axis], size * _whole(depth), *shape[axis + 1 :])
