"""Make one gather of movements that only give rows another order, and look an index up where it was computed.

Windows of attention are shifted by slices that change places, along one axis after another, and then cut from the
image. Whatever row goes where, a table of constants tells it at once.

Starts of slices and updates are lists of one number an axis, of which most are often constants.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from tflgpu.graph.ir import Array, Graph, Node, TensorId
from tflgpu.graph.rewrite_rules import Built, Draft, Match, NewTensors, Rule, Rules, op
from tflgpu.ops.movement.indexing import Digit, Gather, Lookup, Position, follow
from tflgpu.ops.movement.shaping import AxisMap, Concatenate, Rearrange

MOST_ROWS = 1 << 20  # of a table


@dataclass(frozen=True)
class Rows:
    """A tensor whose rows along the last axis are rows of ``source``.

    index: the number of each. joined: whether a concatenation is among what moved them. sources: the model's operators
    that did.
    """

    source: TensorId
    index: Array
    joined: bool
    sources: tuple[int, ...] = ()


def gather_rows(graph: Graph) -> Graph:
    """Let what reads rows that several nodes moved, a concatenation among them, read the result of one gather."""
    known: dict[TensorId, Rows] = {}
    for node in graph.nodes:
        rows = _rows(graph, node, known)
        if rows is not None and rows.index.size <= MOST_ROWS:
            known[node.output] = rows
    new, gathered, replaced = NewTensors(graph), set[TensorId](), dict[TensorId, list[Node]]()
    for output, rows in known.items():
        node, readers = graph.producer[output], graph.consumers.get(output, ())
        is_read = output in graph.wanted or any(reader.output not in known for reader in readers)
        if node.kind == "reshape" and node.inputs[0] in gathered:
            gathered.add(output)
        elif rows.joined and is_read:
            gathered.add(output)
            replaced[output] = list(_gathered(graph, node, rows, new))
    return graph.with_replaced(replaced, new)


def _rows(graph: Graph, node: Node, known: Mapping[TensorId, Rows]) -> Rows | None:
    """Whose rows a node moves; None if it does anything else."""
    shape = graph[node.output].shape
    is_concatenation = isinstance(node.attributes, Concatenate) and len(node.inputs) > 1
    if node.epilogue or not (node.kind == "reshape" or is_concatenation or isinstance(node.attributes, Rearrange)):
        return None
    given = [_given(graph, t, known) for t in node.inputs]
    if any(not graph[t].shape or graph[t].shape[-1:] != shape[-1:] or graph[t].is_constant for t in node.inputs):
        return None
    first = given[0]
    index: Array | None
    match node.attributes:
        case Concatenate(axis):
            same = axis < len(shape) - 1 and len({rows.source for rows in given}) == 1
            index = np.concatenate([rows.index for rows in given], axis) if same else None
        case Rearrange():
            index = _rearranged(first.index, node.attributes, shape)
        case _:
            index = first.index.reshape(shape[:-1])
    if index is None:
        return None
    sources = tuple(dict.fromkeys((*(s for rows in given for s in rows.sources), *node.sources)))
    return Rows(first.source, index, is_concatenation or any(rows.joined for rows in given), sources)


def _given(graph: Graph, tensor: TensorId, known: Mapping[TensorId, Rows]) -> Rows:
    if tensor in known:
        return known[tensor]
    leading = graph[tensor].shape[:-1]
    return Rows(tensor, np.arange(np.prod(leading, dtype=int)).reshape(leading), joined=False)


def _rearranged(index: Array, attributes: Rearrange, shape: tuple[int, ...]) -> Array | None:
    """Return the numbers of the rows of a rearrangement; None if it does not keep rows whole."""
    *outer, last = attributes.axes
    if attributes.fill is not None or last != AxisMap(len(shape) - 1) or any(m.axis == len(shape) - 1 for m in outer):
        return None
    grid = np.indices(shape[:-1], sparse=True)
    places = (m.start + (m.step * grid[m.axis] if m.axis is not None else 0) for m in outer)
    found: Array = np.broadcast_to(index[tuple(places)], shape[:-1])
    return found


def _gathered(graph: Graph, node: Node, rows: Rows, new: NewTensors) -> Iterator[Node]:
    """Yield the gather that makes the result of ``node``: as a matrix first, if that is what is read next."""
    output, source = graph[node.output], graph[rows.source].shape
    leading = (rows.index.size,) if _leads_to_matrix(graph, node.output) else output.shape[:-1]
    result = output if leading == output.shape[:-1] else new.like(output, (*leading, output.shape[-1]))
    inputs, positions = [rows.source], list[Position]()
    places = np.unravel_index(rows.index.reshape(leading), source[:-1]) if len(source) > 1 else ()
    for size, place in zip(source[:-1], places, strict=True):
        lookups: tuple[Lookup, ...] = ()
        if size > 1:
            table = new.constant(np.ascontiguousarray(place, np.int32))
            lookups = (Lookup(len(inputs), tuple(map(AxisMap, range(len(leading)))), None),)
            inputs.append(table)
        positions.append(Position(lookups))
    attributes = Gather((*positions, follow(len(leading))))
    yield Node("gather", tuple(inputs), result.id, attributes, sources=rows.sources)
    if result is not output:
        yield Node("reshape", (result.id,), output.id)


def _leads_to_matrix(graph: Graph, tensor: TensorId) -> bool:
    """Whether something reads the rows of a tensor as those of a matrix."""
    readers = graph.consumers.get(tensor, ())
    shapes = [graph[n.output].shape for n in readers if n.kind == "reshape" and not n.epilogue]
    return any(len(shape) == 2 and shape[-1] == graph[tensor].shape[-1] for shape in shapes)


def _shorten(match: Match) -> Built:
    """Look up single elements of concatenations in what was concatenated; constants among them are numbers."""
    graph, node = match.graph, match.node
    attributes = node.attributes
    assert isinstance(attributes, Gather)
    inputs = [node.inputs[0]]
    background = None
    if attributes.background is not None:
        inputs.append(node.inputs[attributes.background])
        background = 1
    positions = tuple(_position(graph, node, position, inputs) for position in attributes.positions)
    attributes = replace(attributes, positions=positions, background=background)
    shortened = replace(node, inputs=tuple(inputs), attributes=attributes)
    return None if shortened == node else [shortened]


def _position(graph: Draft, node: Node, position: Position, inputs: list[TensorId]) -> Position:
    """Return the same coordinate of a node with other ``inputs``, to which those are added that it needs."""
    start, terms = position.start, list[Digit | Lookup]()
    for term in position.terms:
        if isinstance(term, Digit):
            terms.append(term)
            continue
        table, places = _found(graph, node.inputs[term.input], term.places)
        data = graph.constant(table)
        if data is not None and all(place.axis is None for place in places):
            value = int(data[tuple(place.start for place in places)])
            start += term.step * (value if term.limit is None else int(np.clip(value, 0, term.limit)))
            continue
        if table not in inputs[1:]:
            inputs.append(table)
        terms.append(replace(term, input=inputs.index(table, 1), places=places))
    return Position(tuple(terms), start)


def _found(graph: Draft, table: TensorId, places: tuple[AxisMap, ...]) -> tuple[TensorId, tuple[AxisMap, ...]]:
    """Where an element of a tensor comes from, through the concatenations that have put it there."""
    while True:
        producer = graph.producer.get(table)
        if producer is None or producer.epilogue or not isinstance(producer.attributes, Concatenate):
            return table, places
        axis = producer.attributes.axis
        if places[axis].axis is not None:
            return table, places
        place = places[axis].start
        for operand in producer.inputs:
            size = graph[operand].shape[axis]
            if place < size:
                break
            place -= size
        table, places = operand, (*places[:axis], AxisMap(None, place), *places[axis + 1 :])


shorten_lookups = Rules((Rule("shorten_lookups", op("gather", plain=True), _shorten),))
