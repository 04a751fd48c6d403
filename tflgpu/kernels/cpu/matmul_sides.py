"""Products of matrices on CPUs whose rows do not lie side by side: moved until they do, wherever that is worth it.

Rows of a matrix without batch axes are images of their own in PHWC4, and those of an adjoint left side are channels.
The kernel of blocks reads neither. To move the sides takes time by their elements, the product by its multiplications.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tflgpu.graph.ir import Node, Tensor, TensorId
from tflgpu.graph.layout import Geometry, Shape
from tflgpu.graph.rewrite_rules import Built, Draft, Match, Rule, op
from tflgpu.kernels.cpu import CPU
from tflgpu.kernels.fusing import epilogue_behind
from tflgpu.kernels.kernel import Storage
from tflgpu.kernels.rewriting import Planning
from tflgpu.ops.arithmetic.matmul import MatMul, matrix_of
from tflgpu.ops.movement.shaping import AxisMap, Rearrange
from tflgpu.target import ElementType
from tflgpu.target.kernel_numbers import kernel_numbers


@dataclass(frozen=True, kw_only=True)
class MovedSides:
    """Numbers of products of matrices whose sides are moved first.

    Attributes:
        least_products: Products for each element that is moved, from which on blocks are faster.
    """

    least_products: int


NUMBERS = kernel_numbers("cpu/matmul_sides", MovedSides)


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
    return result.size * depth >= NUMBERS.least_products * sum(t.size for t in moved)


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
