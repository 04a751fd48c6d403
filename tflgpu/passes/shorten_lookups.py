"""Let a gather look up an index where it was computed, not in a list that it was put into.

Starts of slices and updates are lists of one number an axis, of which most are often constants.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tflgpu.graph.ir import Node, TensorId
from tflgpu.graph.rewrite_rules import Built, Draft, Match, Rule, Rules, op
from tflgpu.ops.movement.indexing import Digit, Gather, Lookup, Position
from tflgpu.ops.movement.shaping import AxisMap, Concatenate


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
