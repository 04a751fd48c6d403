"""Concatenations of what is one tensor already, their slices, and concatenations of many inputs in groups.

A growing concatenation begins with all of the one before it, so that all can have the memory of the last one.

A loop that fills a list becomes one concatenation after another: of the rows before the new one, that row, and the rows
after it. Once the slices are gone, only the last of them is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tflgpu.graph.ir import Graph, Node, Tensor, TensorId
from tflgpu.graph.layout import LANES, Geometry
from tflgpu.graph.rewrite_rules import AnyGraph, Built, Draft, Match, NewTensors, Rule, Rules, op
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


# Inputs of one concatenation: each is a pointer and an offset among its kernel's arguments, for which OpenCL promises
# 1024 bytes.
MAX_INPUTS = 32


@dataclass(frozen=True)
class Piece:
    """``size`` coordinates of a tensor along an axis, from ``start`` on: all of it, or a part of a constant."""

    tensor: TensorId
    start: int
    size: int


@dataclass(frozen=True)
class Pieces:
    """Pieces of a tensor, one after another along ``axis``. is_slice: whether the tensor is a slice of another."""

    axis: int
    each: tuple[Piece, ...]
    is_slice: bool


def slice_concatenations(graph: Graph) -> Graph:
    """Let slices of concatenations, and what is concatenated of such slices, read the inputs of these."""
    known: dict[TensorId, Pieces] = {}
    alias: dict[TensorId, TensorId] = {}
    nodes: list[Node] = []
    new = NewTensors(graph)
    for original in graph.nodes:
        node = replace(original, inputs=tuple(alias.get(t, t) for t in original.inputs))
        sliced = any(t in known and known[t].is_slice for t in node.inputs)
        pieces = _pieces(graph, node, known)
        if pieces is not None:
            known[node.output] = pieces
            only = pieces.each[0] if len(pieces.each) == 1 else None
            if only and node.output not in graph.wanted and graph[only.tensor].shape == graph[node.output].shape:
                alias[node.output] = only.tensor
                continue
            if sliced and not pieces.is_slice:
                inputs = _tensors(graph, pieces, new)
                nodes += _concatenations(node, inputs, pieces.axis, graph[node.output], new)
                continue
        if isinstance(node.attributes, Concatenate) and len(node.inputs) > MAX_INPUTS:
            inputs = [graph[t] for t in node.inputs]
            nodes += _concatenations(node, inputs, node.attributes.axis, graph[node.output], new)
        else:
            nodes.append(node)
    return graph.with_nodes(nodes, new)


def _pieces(graph: Graph, node: Node, known: Mapping[TensorId, Pieces]) -> Pieces | None:
    """Return what stands in the result of a concatenation, or of a slice of one; None for anything else."""
    if node.epilogue:
        return None
    if isinstance(node.attributes, Concatenate):
        axis, each = node.attributes.axis, list[Piece]()
        for t in node.inputs:
            inner = known.get(t)
            is_slice = inner is not None and inner.is_slice and inner.axis == axis
            each += inner.each if inner is not None and is_slice else [Piece(t, 0, graph[t].shape[axis])]
        return Pieces(axis, tuple(each), is_slice=False)
    source = known.get(node.inputs[0]) if node.inputs else None
    if source is None or not isinstance(node.attributes, Rearrange):
        return None
    shapes = graph[node.inputs[0]].shape, graph[node.output].shape
    start = slice_start(node.attributes, *shapes, source.axis)
    taken = None if start is None else _cut(graph, source, start, shapes[1][source.axis])
    return Pieces(source.axis, tuple(taken), is_slice=True) if taken else None


def _cut(graph: Graph, source: Pieces, start: int, size: int) -> list[Piece] | None:
    """Return the pieces of a slice of ``source``; None if one would be a part of what is no constant."""
    result: list[Piece] = []
    place = 0
    for piece in source.each:
        first, last = max(start, place), min(start + size, place + piece.size)
        if first < last:
            if last - first < piece.size and not graph[piece.tensor].is_constant:
                return None
            result.append(Piece(piece.tensor, piece.start + first - place, last - first))
        place += piece.size
    return result


def _tensors(graph: Graph, pieces: Pieces, new: NewTensors) -> list[Tensor]:
    """Return a tensor for each piece; parts of constants are new constants."""
    result: list[Tensor] = []
    for piece in pieces.each:
        tensor = graph[piece.tensor]
        if piece.size != tensor.shape[pieces.axis]:
            assert tensor.data is not None
            data = tensor.data.take(range(piece.start, piece.start + piece.size), pieces.axis)
            tensor = new.add(replace(tensor, shape=data.shape, data=data, scale=None))
        result.append(tensor)
    return result


def _concatenations(node: Node, inputs: Sequence[Tensor], axis: int, output: Tensor, new: NewTensors) -> Iterator[Node]:
    """``node`` with these inputs, which are concatenated in groups first if they are many."""
    while len(inputs) > MAX_INPUTS:
        groups = [inputs[i : i + MAX_INPUTS] for i in range(0, len(inputs), MAX_INPUTS)]
        inputs = []
        for group in groups:
            size = sum(t.shape[axis] for t in group)
            joined = new.like(output, (*output.shape[:axis], size, *output.shape[axis + 1 :]))
            yield replace(node, inputs=tuple(t.id for t in group), output=joined.id, epilogue=())
            inputs.append(joined)
    yield replace(node, inputs=tuple(t.id for t in inputs))
