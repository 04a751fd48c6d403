"""Nodes that CPUs compute as one, attention and pairs of convolutions, and products whose rows are moved together.

The tensor between a pair, often the largest of a model, then stays in the cache of a core.

Rows of a matrix without batch axes are images of their own in PHWC4, and those of an adjoint left side are channels.
The kernel of a product's blocks reads neither. To move the sides takes time by their elements, the product by its
multiplications.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from tflgpu.graph.ir import EpilogueOp, Graph, Node, Tensor, TensorId
from tflgpu.graph.layout import Geometry, Shape
from tflgpu.graph.rewrite_rules import Built, Draft, Match, Rule, op, rewrite
from tflgpu.kernels.attention import with_attention
from tflgpu.kernels.convolutions import unrolls
from tflgpu.kernels.cpu import CPU
from tflgpu.kernels.cpu.attention_kernel import has_room
from tflgpu.kernels.cpu.band_kernels import (
    Band,
    ConvolutionDepthwise,
    band_candidates,
    band_work,
    depthwise_pointwise_bands,
    depthwise_pointwise_work,
)
from tflgpu.kernels.cpu.costs import PairWork, depthwise_rate
from tflgpu.kernels.demand import cycles
from tflgpu.kernels.fusing import (
    DepthwisePointwise,
    epilogue_behind,
    epilogue_without_inputs,
    is_pointwise,
    joined_node,
    weights_and_bias,
)
from tflgpu.kernels.kernel import Storage
from tflgpu.kernels.rewriting import Planning
from tflgpu.ops.arithmetic.matmul import MatMul, matrix_of
from tflgpu.ops.image.convolution import Convolution, Depthwise
from tflgpu.ops.movement.shaping import AxisMap, Rearrange
from tflgpu.target import ElementType, Target
from tflgpu.target.kernel_numbers import kernel_numbers


@CPU.fusion()
def fuse_attention(graph: Graph, storage: Mapping[TensorId, Storage], target: Target) -> Graph:
    """One node for each attention for which the kernels have room."""
    return with_attention(graph, storage, lambda attention, _: has_room(attention))


Storages = Mapping[TensorId, Storage]
Join = Callable[[Node, Node, tuple[EpilogueOp, ...], Draft, Storages, Target], object]


@CPU.fusion()
def fuse_bands(graph: Graph, storage: Storages, target: Target) -> Graph:
    """One node for each pair of neighbours that run faster so. First those that spare the most memory."""
    if target.arithmetic == "half" or (target.storage == "half" and _is_quantized(graph)):
        return graph
    graph = _joined(graph, storage, target, "convolution_depthwise", _convolution_depthwise)
    return _joined(graph, storage, target, "depthwise_pointwise", _depthwise_pointwise)


def _is_quantized(graph: Graph) -> bool:
    """Whether half precision stores whole numbers, which convolutions by themselves sum without error."""
    return any(op.function == "fake_quantize" for node in graph.nodes for op in node.epilogue)


def _joined(graph: Graph, storage: Storages, target: Target, kind: str, join: Join) -> Graph:
    """Return the graph with nodes of ``kind`` for pairs. join: their attributes, or None where two kernels are
    faster."""

    def fuse(match: Match) -> Built:
        first, node = match["first"], match.node
        constant = match.graph[first.inputs[1]].is_constant and match.graph[node.inputs[1]].is_constant
        epilogue = epilogue_without_inputs(match.graph, first) if constant and first.inputs[0] in storage else None
        attributes = None if epilogue is None else join(first, node, epilogue, match.graph, storage, target)
        if attributes is None:
            return None
        constants = (t for n in (first, node) for t in weights_and_bias(match.graph, n, match.graph.new))
        return [joined_node(kind, attributes, first, node, (first.inputs[0], *constants))]

    pattern = op("convolution|depthwise", op("convolution|depthwise", name="first", alone=True))
    return rewrite(graph, [Rule(kind, pattern, fuse)]).graph


def _multiplies_integers(convolution: Node, graph: Draft, storage: Storages, target: Target) -> bool:
    """Whether a convolution has a kernel of its own that multiplies integers, which no kernel of bands does."""
    on_grid = storage[convolution.inputs[0]].grid is not None
    return target.integer_unit is not None and on_grid and graph[convolution.inputs[1]].scale is not None


def _convolution_depthwise(
    first: Node, second: Node, epilogue: tuple[EpilogueOp, ...], graph: Draft, storage: Storages, target: Target
) -> ConvolutionDepthwise | None:
    before, after = first.attributes, second.attributes
    if _multiplies_integers(first, graph, storage, target):
        return None
    if not (isinstance(before, Convolution) and isinstance(after, Depthwise) and unrolls(after)) or before.groups != 1:
        return None
    attributes = ConvolutionDepthwise(before.window, after.window, epilogue)
    src, dst = storage[first.inputs[0]], storage[second.output].geometry
    together = band_candidates(attributes, src, dst, target)
    work, between = band_work(Band(1, dst.height), attributes, src, dst, target), storage[first.output]
    alone = cycles(PairWork(work, between, depthwise_rate(after.window, target)), target)
    return attributes if together and together[0].cycles < alone else None


def _depthwise_pointwise(
    first: Node, second: Node, epilogue: tuple[EpilogueOp, ...], graph: Draft, storage: Storages, target: Target
) -> DepthwisePointwise | None:
    before = first.attributes
    if _multiplies_integers(second, graph, storage, target):
        return None
    if not (isinstance(before, Depthwise) and unrolls(before) and is_pointwise(second)):
        return None
    src, dst = storage[first.inputs[0]], storage[second.output].geometry
    together = depthwise_pointwise_bands(before.window, src, dst, target)
    work = depthwise_pointwise_work(Band(1, dst.height), before.window, src, dst, target)
    alone = cycles(PairWork(work, storage[first.output], depthwise_rate(before.window, target)), target)
    return DepthwisePointwise(before.window, epilogue) if together and together[0].cycles < alone else None


@dataclass(frozen=True, kw_only=True)
class MovedSides:
    """Numbers of products of matrices whose sides are moved first.

    Attributes:
        least_products: Products for each element that is moved, from which on blocks are faster.
    """

    least_products: int


SIDE_NUMBERS = kernel_numbers("cpu/matmul_sides", MovedSides)


@CPU.rewrite("divide")
def lay_rows_side_by_side(planning: Planning) -> Planning:
    """Put movements around such products."""
    storage = dict(planning.storage)

    def move(match: Match) -> Built:
        element = "float" if match.graph[match.node.output].precise else planning.target.storage
        return _Moving(match.graph, storage).product(match.node, element)

    rule = Rule("lay_rows_side_by_side", op("matmul", where=_is_worthwhile), move)
    return planning.rewritten(rule, storage=storage)


def _is_worthwhile(graph: Draft, node: Node) -> bool:
    attributes = node.attributes
    if not isinstance(attributes, MatMul) or node.epilogue_inputs & {0, 1}:
        return False
    left, right, result = (graph[t] for t in (*node.inputs[:2], node.output))
    moved = [left, *([result] if len(result.shape) == 2 else [])]
    if len(right.shape) == 2 and attributes.adjoint_right:
        moved.append(right)
    elif len(left.shape) > 2 and not attributes.adjoint_left:
        return False  # the rows lie side by side
    _, depth = matrix_of(left.shape, attributes.adjoint_left)
    return result.size * depth >= SIDE_NUMBERS.least_products * sum(t.size for t in moved)


class _Moving:
    """Nodes in the place of one. storage: gets that of what is between them."""

    def __init__(self, graph: Draft, storage: dict[TensorId, Storage]) -> None:
        self._graph, self._storage = graph, storage
        self._nodes: list[Node] = []

    def product(self, node: Node, element: ElementType) -> list[Node]:
        """Return ``node`` on sides whose rows lie side by side, with what moves these and the result.

        Args:
            node: A product of matrices.
            element: The type of its result before the epilogue.
        """
        attributes, shape = node.attributes, self._graph[node.output].shape
        assert isinstance(attributes, MatMul)
        sides = (
            self._side(node, 0, swapped=attributes.adjoint_left),
            self._side(node, 1) if attributes.adjoint_right else node.inputs[1],
        )
        product = replace(node, inputs=(*sides, *node.inputs[2:]), attributes=replace(attributes, adjoint_left=False))
        if len(shape) > 2:
            return [*self._nodes, product]
        result = self._new((1, *shape), element)
        back = Rearrange((AxisMap(None), AxisMap(0), AxisMap(1)))
        inputs, epilogue = (result, *node.inputs[2:]), epilogue_behind(node, 1)
        return [
            *self._nodes,
            replace(product, inputs=sides, output=result, epilogue=()),
            Node("rearrange", inputs, node.output, back, epilogue, node.sources),
        ]

    def _side(self, node: Node, number: int, *, swapped: bool = False) -> TensorId:
        """Return the tensor of a side with a batch axis, its last two axes ``swapped``."""
        side = self._graph[node.inputs[number]]
        rank, new = len(side.shape), int(len(side.shape) == 2)
        order = [*range(rank - 2), *((rank - 1, rank - 2) if swapped else (rank - 2, rank - 1))]
        if not new and not swapped:
            return side.id
        shape = (1,) * new + tuple(side.shape[axis] for axis in order)
        if side.data is not None:
            moved = np.ascontiguousarray(side.data.transpose(order)).reshape(shape)
            return self._graph.new.add(replace(side, shape=shape, data=moved, scale=None)).id
        result = self._new(shape, self._storage[side.id].type, side)
        attributes = Rearrange(tuple(AxisMap(new + axis) for axis in order))
        self._nodes.append(Node("rearrange", (side.id,), result, attributes, sources=node.sources))
        return result

    def _new(self, shape: Shape, element: ElementType, like: Tensor | None = None) -> TensorId:
        tensor = self._graph.new.add(Tensor(-1, "", shape) if like is None else replace(like, shape=shape))
        grid = None if like is None else self._storage[like.id].grid
        self._storage[tensor.id] = Storage(Geometry(shape), element, grid=grid)
        return tensor.id
