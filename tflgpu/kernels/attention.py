"""Attention as one node: what it computes, where its kernels find rows, and how it is found in a graph.

``softmax(scale * queries * keys + mask) * values``, for each head. Its operands are read where they were computed, as
the heads of longer rows, and its result is stored so.

The scores of all rows are the largest tensor of attention, and each is used once. In one kernel they never leave a
core.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd, prod

from tflgpu.graph.ir import EpilogueOp, Graph, Input, Node, TensorId, Value, joint_sources, remove_dead
from tflgpu.graph.layout import LANES, Geometry, Shape
from tflgpu.kernels.access import BatchTerm
from tflgpu.kernels.fusing import joined_node
from tflgpu.kernels.kernel import Argument, Parameters, Storage
from tflgpu.kernels.request import Request
from tflgpu.ops.arithmetic.matmul import MatMul
from tflgpu.ops.arithmetic.reduction import Softmax
from tflgpu.ops.movement.shaping import Factor, Strided, axes_of, broadcast, composed, inverse, whole


@dataclass(frozen=True)
class Reach:
    """The vec4 of slice s of a row of a head: ``start``, the digits of the head, ``row`` * row and ``slice`` * s."""

    start: int
    digits: tuple[BatchTerm, ...]
    row: int
    slice: int


@dataclass(frozen=True)
class Attention:
    """Inputs: queries, keys, values, and a mask unless its reach is None.

    heads: of all batches. rows: of queries, and of the result. depth: of queries and keys; value_depth: of the others.
    parts: into how many the keys are divided. Of several, the result is that of each part, and how much it weighs:
    float [heads, parts, rows, value_depth + 4], of which the last vec4 has the greatest score, times log2(e), and the
    sum of the weights relative to it.
    """

    heads: int
    rows: int
    keys: int
    depth: int
    value_depth: int
    scale: float
    query: Reach
    key: Reach
    value: Reach
    mask: Reach | None
    result: Reach
    parts: int = 1

    @property
    def macs(self) -> int:
        """Multiply-adds of both products."""
        return self.heads * self.rows * self.keys * (self.depth + self.value_depth)


def groups_as_rows(attention: Attention) -> Attention:
    """Return the same with heads that share keys and values as rows of one head, if each head has a single row.

    So it is when a language model computes one token, whose heads are groups: what is read once serves a group.
    """
    shared = (d.divisor for reach in (attention.key, attention.value) for d in reach.digits)
    group = gcd(attention.heads, *shared)
    if attention.rows > 1 or group == 1:
        return attention
    query, result = _rows_of_groups(attention.query, group), _rows_of_groups(attention.result, group)
    mask = _rows_of_groups(attention.mask, group) if attention.mask else None
    if query is None or result is None or (mask is None) != (attention.mask is None):
        return attention
    key, value = (
        replace(reach, digits=tuple(replace(d, divisor=d.divisor // group) for d in reach.digits))
        for reach in (attention.key, attention.value)
    )
    heads = attention.heads // group
    return replace(attention, heads=heads, rows=group, query=query, key=key, value=value, mask=mask, result=result)


def _rows_of_groups(reach: Reach, group: int) -> Reach | None:
    """Return a reach by ``head / group``, and by ``head % group`` as the row; None if rows have no single stride."""
    rows, heads = list[BatchTerm](), list[BatchTerm]()
    for digit in reach.digits:
        if digit.divisor % group == 0:
            heads.append(replace(digit, divisor=digit.divisor // group))
            continue
        inside = min(digit.extent, group // digit.divisor)
        if group % (digit.divisor * inside) or digit.extent % inside:
            return None
        rows.append(replace(digit, extent=inside))
        if digit.extent > inside:
            heads.append(BatchTerm(1, digit.extent // inside, digit.stride * inside))
    if not rows:
        return replace(reach, digits=tuple(heads), row=0)
    row = min(rows, key=lambda digit: digit.divisor).stride
    if prod(d.extent for d in rows) != group or any(d.stride != row * d.divisor for d in rows):
        return None
    return replace(reach, digits=tuple(heads), row=row)


@dataclass(frozen=True, kw_only=True)
class AttentionParameters(Parameters):
    """Parameters of templates of attention."""

    attention: Attention
    queries: Argument
    keys: Argument
    values: Argument
    mask: Argument | None = None


def operands_of(request: Request, attention: Attention) -> dict[str, Argument]:
    """Return the arguments by which kernels read an attention's inputs, by name."""
    names = ("queries", "keys", "values", "mask")[: 4 if attention.mask else 3]
    return {name: request.operand(name, index) for index, name in enumerate(names)}


def reach_in_rows(strided: Strided, shape: Shape, axes: tuple[int, int], geometry: Geometry) -> Reach | None:
    """Return how kernels reach into a tensor whose channels are whole vec4s; None if strides of vec4s do not tell it.

    Args:
        strided: A movement of the tensor.
        shape: (heads, ..) of what ``strided`` makes of the tensor.
        axes: Those of the rows and of the elements of a row.
        geometry: The tensor's.
    """
    found = axes_of(strided, shape)
    if found is None:
        return None
    rows, elements = (found[axis] for axis in axes)
    depth = Factor(shape[axes[1]], 1)
    strides = _vec4_strides(strided.start, [*found[0], *rows, depth], geometry)
    if depth.extent % LANES or elements != (depth,) or len(rows) > 1 or strides is None:
        return None
    start, *others = strides
    digits = (BatchTerm(prod(g.extent for g in found[0][i + 1 :]), f.extent, others[i]) for i, f in enumerate(found[0]))
    return Reach(start, tuple(d for d in digits if d.stride), others[len(found[0])] if rows else 0, geometry.plane)


def _vec4_strides(start: int, factors: Sequence[Factor], geometry: Geometry) -> list[int] | None:
    """Return the vec4 of element ``start``, and by how many vec4s a step of each factor goes on; None if that differs.

    Factors, the last of which is of single elements, stay within the channels of a pixel, go from pixel to pixel of an
    image, or from image to image.
    """
    channels, plane = geometry.channels, geometry.plane
    if any(n % LANES for n in (channels, start, *(f.stride for f in factors[:-1]))):
        return None
    if plane == 1:
        return [start // LANES, *(f.stride // LANES for f in factors)]
    pixel, channel = divmod(start, channels)
    image, pixel = divmod(pixel, plane)
    strides = [image * geometry.slices * plane + channel // LANES * plane + pixel]
    for factor in factors:
        if factor.stride < channels:
            channel += (factor.extent - 1) * factor.stride
            strides.append(factor.stride // LANES * plane)
        elif factor.stride % (channels * plane) == 0:
            strides.append(factor.stride // channels * geometry.slices)
        elif factor.stride % channels == 0:
            pixel += (factor.extent - 1) * factor.stride // channels
            strides.append(factor.stride // channels)
        else:
            return None
    return strides if channel < channels and pixel < plane else None


def reach_in_planes(shape: Shape, leading: Sequence[int], rows: int) -> Reach | None:
    """Return how kernels reach into a tensor in PHWC4 whose last axes are the rows and their elements.

    Args:
        shape: The tensor's, with axes of size 1 where it is the same for all of ``leading``, or for all rows.
        leading: The sizes of the axes of heads.
        rows: How many rows a head has.
    """
    own = (1,) * (len(leading) + 2 - len(shape)) + tuple(shape)
    if len(own) != len(leading) + 2 or own[-2] not in (1, rows):
        return None
    geometry = Geometry(shape)
    strides = (0,) * (len(own) - len(shape)) + geometry.axis_strides
    digits = tuple(
        BatchTerm(prod(leading[i + 1 :]), extent, strides[i]) for i, extent in enumerate(leading) if own[i] > 1
    )
    return Reach(0, digits, strides[-1] if own[-2] > 1 else 0, geometry.plane)


MOVEMENTS = ("reshape", "strided")


def with_attention(
    graph: Graph, storage: Mapping[TensorId, Storage], fits: Callable[[Attention, Sequence[TensorId]], bool]
) -> Graph:
    """One node for each attention whose operands kernels can read where they are.

    Args:
        graph: The graph.
        storage: How its tensors are stored.
        fits: Whether there is a kernel for an attention with these inputs.

    Returns:
        The graph with the nodes of kind "attention".
    """
    found = {}
    for node in graph.of_kind("softmax"):
        attention = _attention(graph, storage, node)
        if attention is None or not isinstance(attention.attributes, Attention):
            continue
        if fits(attention.attributes, attention.inputs):
            found[attention.output] = (attention,)
    return remove_dead(graph.with_replaced(found)) if found else graph


def _attention(graph: Graph, storage: Mapping[TensorId, Storage], softmax: Node) -> Node | None:
    """Return the node that computes what ``softmax`` is a part of."""
    if softmax.attributes != Softmax(1.0) or softmax.epilogue:
        return None
    weighted, scores = _weighted(graph, softmax), _scores(graph, softmax)
    if weighted is None or scores is None:
        return None
    sides, weights = scores.product.attributes, weighted.attributes
    assert isinstance(sides, MatMul) and isinstance(weights, MatMul)
    *_, rows, depth = graph[scores.product.inputs[0]].shape
    *leading, _, value_depth = graph[weighted.output].shape
    keys, heads = graph[softmax.output].shape[-1], prod(leading)
    query = _operand(graph, storage, scores.product.inputs[0], (heads, rows, depth), swapped=False)
    key = _operand(graph, storage, scores.product.inputs[1], (heads, keys, depth), swapped=not sides.adjoint_right)
    value = _operand(graph, storage, weighted.inputs[1], (heads, keys, value_depth), swapped=weights.adjoint_right)
    result = _result(graph, storage, weighted, (heads, rows, value_depth))
    if query is None or key is None or value is None or result is None or value.scale != 1:
        return None
    mask = None
    if scores.mask is not None:
        mask = reach_in_planes(graph[scores.mask].shape, scores.leading, rows)
        if mask is None or graph[scores.mask].shape[-1] != keys:
            return None
    scale = scores.scale * query.scale * key.scale
    attributes = groups_as_rows(
        Attention(heads, rows, keys, depth, value_depth, scale, query.reach, key.reach, value.reach, mask, result.reach)
    )
    inputs = (query.tensor, key.tensor, value.tensor, *((scores.mask,) if scores.mask is not None else ()))
    node = joined_node("attention", attributes, softmax, result.last, inputs)
    parts = (*query.nodes, *key.nodes, *value.nodes, *scores.nodes, softmax, weighted, result.last)
    return replace(node, sources=tuple(sorted(joint_sources(*parts))))


def _weighted(graph: Graph, softmax: Node) -> Node | None:
    """Return the product of a softmax and the values, if nothing else reads it."""
    tensor, reader = softmax.output, graph.sole_consumer(softmax.output)
    while reader is not None and reader.kind == "reshape" and not reader.epilogue:
        tensor, reader = reader.output, graph.sole_consumer(reader.output)
    if reader is None or not isinstance(reader.attributes, MatMul) or reader.inputs[0] != tensor:
        return None
    keeps_heads = prod(graph[reader.output].shape[:-2]) == prod(graph[tensor].shape[:-2])
    return reader if keeps_heads and not reader.attributes.adjoint_left else None


@dataclass(frozen=True)
class Scores:
    """``scale * product + mask``. leading: the axes of the heads, as the mask sees them. nodes: what computes them."""

    product: Node
    scale: float
    mask: TensorId | None
    leading: Shape
    nodes: tuple[Node, ...]


def _scores(graph: Graph, softmax: Node) -> Scores | None:
    """Return what a softmax reads, if it is a product of two activations that is scaled, and then masked."""
    tensor, nodes = softmax.inputs[0], list[Node]()
    while not nodes or not isinstance(nodes[0].attributes, MatMul):
        node = graph.producer.get(tensor)
        if node is None or graph.sole_consumer(tensor) is None or node.kind not in ("map", "reshape", "matmul"):
            return None
        nodes.insert(0, node)
        tensor = node.inputs[0]
    product = nodes[0]
    assert isinstance(product.attributes, MatMul)
    if (
        product.attributes.adjoint_left
        or len({prod(graph[t].shape[:-2]) for t in (*product.inputs[:2], product.output)}) > 1
    ):
        return None
    scale, mask, leading = 1.0, None, graph[product.output].shape[:-2]
    for node in nodes:
        for position, op in enumerate(node.epilogue):
            other = _other_operand(node, position, op)
            if other is None or mask is not None:
                return None
            number = graph.constant(other)
            if op.function == "add" and graph[other].size > 1:
                mask, leading = other, graph[node.output].shape[:-2]
            elif op.function == "mul" and number is not None and number.size == 1:
                scale *= float(number.item())
            else:
                return None
    if graph[softmax.output].shape[-2:] != graph[product.output].shape[-2:]:
        return None
    return Scores(product, scale, mask, leading, tuple(nodes))


def _other_operand(node: Node, position: int, op: EpilogueOp) -> TensorId | None:
    """Return the input that an epilogue op joins with the value before it; None if it does anything else."""
    others = [o for o in op.operands if isinstance(o, Input)]
    is_next = len(op.operands) == 2 and len(others) == 1 and Value(position) in op.operands
    return node.inputs[others[0].index] if is_next else None


@dataclass(frozen=True)
class Found:
    """An operand: ``scale`` times what lies in ``tensor``. nodes: those that nothing else needs."""

    tensor: TensorId
    reach: Reach
    scale: float
    nodes: tuple[Node, ...]


def _operand(
    graph: Graph, storage: Mapping[TensorId, Storage], tensor: TensorId, shape: Shape, *, swapped: bool
) -> Found | None:
    """Where the rows of an operand come from, as far back as kernels can read them. shape: heads, rows, elements.

    swapped: whether ``tensor`` has the last two axes in the other order.
    """
    heads, rows, elements = shape
    given = (heads, elements, rows) if swapped else shape
    found, view, scale, nodes = None, whole(prod(shape)), 1.0, tuple[Node, ...]()
    if not swapped and tensor in storage and not storage[tensor].linear and elements % LANES == 0:
        reach = reach_in_planes(graph[tensor].shape, graph[tensor].shape[:-2], rows)
        found = Found(tensor, reach, scale, nodes) if reach is not None else None
    while True:
        if tensor in storage and not storage[tensor].linear:
            reach = reach_in_rows(view, given, (2, 1) if swapped else (1, 2), storage[tensor].geometry)
            found = Found(tensor, reach, scale, nodes) if reach is not None else found
        node = graph.producer.get(tensor)
        factor = _factor(graph, node) if node is not None and node.kind in (*MOVEMENTS, "map") else None
        if node is None or factor is None or graph.sole_consumer(tensor) is None:
            return found
        before = composed(_movement(graph, node), view)
        if before is None:
            return found
        tensor, view, scale, nodes = node.inputs[0], before, scale * factor, (node, *nodes)


def _movement(graph: Graph, node: Node) -> Strided:
    """How a node moves elements: a map repeats those that it broadcasts, as models do for groups of queries."""
    if isinstance(node.attributes, Strided):
        return node.attributes
    before, after = graph[node.inputs[0]].shape, graph[node.output].shape
    return broadcast(before, after) if node.kind == "map" else whole(prod(after))


def _factor(graph: Graph, node: Node) -> float | None:
    """By what a node multiplies what it moves; None if it computes anything else."""
    factor = 1.0
    for position, op in enumerate(node.epilogue):
        other = _other_operand(node, position, op)
        number = graph.constant(other) if other is not None else None
        if op.function != "mul" or number is None or number.size != 1:
            return None
        factor *= float(number.item())
    return None if graph[node.inputs[0]].is_constant else factor


@dataclass(frozen=True)
class Result:
    """Where the rows of the result go: into the output of ``last``, the last node of the attention."""

    last: Node
    reach: Reach


def _result(graph: Graph, storage: Mapping[TensorId, Storage], weighted: Node, shape: Shape) -> Result | None:
    """Follow the result as far as the kernel can store the rows where the next one reads them."""
    found, view, last = None, whole(prod(shape)), weighted
    if shape[-1] % LANES == 0:
        reach = reach_in_planes(graph[weighted.output].shape, graph[weighted.output].shape[:-2], shape[1])
        found = Result(weighted, reach) if reach is not None else None
    while not last.epilogue:
        reader = graph.sole_consumer(last.output)
        if reader is None or reader.kind not in MOVEMENTS or reader.inputs[0] != last.output:
            break
        after = composed(view, reader.attributes) if isinstance(reader.attributes, Strided) else view
        back = inverse(after) if after is not None else None
        if after is None or back is None:
            break
        view, last = after, reader
        stored = storage.get(reader.output)
        reach = (
            reach_in_rows(back, shape, (1, 2), stored.geometry) if stored is not None and not stored.linear else None
        )
        found = Result(reader, reach) if reach is not None else found
    return found
