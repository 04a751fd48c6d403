"""The ``gather`` node: each element of its result is found by arithmetic on coordinates and by tensors of indices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tflgpu.layout import LANES, Geometry, Shape
from tflgpu.ops.access import Coordinate, coordinates
from tflgpu.ops.base import Array
from tflgpu.ops.kernel import Kernel, Request, items_per_tile, tile_count, variant
from tflgpu.ops.shaping import AxisMap
from tflgpu.target import vector_type


@dataclass(frozen=True)
class Digit:
    """``step * ((coordinate + shift) // divisor % modulus)`` of the output's coordinate along ``axis``.

    modulus: 0 leaves the modulo out. The sum with ``shift`` must not be negative where there is a divisor or modulus.
    """

    axis: int
    step: int = 1
    shift: int = 0
    divisor: int = 1
    modulus: int = 0


@dataclass(frozen=True)
class Lookup:
    """``step`` times an element of the node's input ``input``, a tensor of integers.

    places: how each axis of that input follows the output.
    limit: the greatest index; elements are clamped to ``0..limit``. None if any number is welcome.
    """

    input: int
    places: tuple[AxisMap, ...]
    limit: int | None
    step: int = 1


@dataclass(frozen=True)
class Position:
    """One coordinate of the source: ``start`` and the sum of ``terms``."""

    terms: tuple[Digit | Lookup, ...]
    start: int = 0


@dataclass(frozen=True)
class Gather:
    """Each output element is the element of input 0 at ``positions``, one for each of its axes.

    fill: the result where a position leaves the source.
    background: the input, of the output's shape, that has the result there. Without either, no position may leave it.
    """

    positions: tuple[Position, ...]
    fill: float | int | None = None
    background: int | None = None


def follow(axis: int) -> Position:
    """The output's own coordinate along ``axis``."""
    return Position((Digit(axis),))


def evaluate(attributes: Gather, inputs: list[Array], shape: Shape) -> Array:
    """The numpy meaning of a ``gather`` node."""
    grid = np.indices(shape, sparse=True)
    source, inside, index = inputs[0], np.ones(shape, bool), list[Array]()
    for size, position in zip(source.shape, attributes.positions, strict=True):
        coordinate = np.broadcast_to(position.start + sum(_term(t, inputs, grid) for t in position.terms), shape)
        inside &= (coordinate >= 0) & (coordinate < size)
        index.append(np.clip(coordinate, 0, size - 1))
    taken = source[tuple(index)]
    if attributes.background is not None:
        return np.where(inside, taken, inputs[attributes.background])
    return taken if attributes.fill is None else np.where(inside, taken, source.dtype.type(attributes.fill))


def _term(term: Digit | Lookup, inputs: list[Array], grid: tuple[Array, ...]) -> Array:
    if isinstance(term, Digit):
        digit = (grid[term.axis] + term.shift) // term.divisor
        result: Array = term.step * (digit % term.modulus if term.modulus else digit)
        return result
    at = tuple(m.start + (0 if m.axis is None else m.step * grid[m.axis]) for m in term.places)
    found = np.asarray(inputs[term.input][at], np.int64)
    return term.step * (found if term.limit is None else np.clip(found, 0, term.limit))


@dataclass(frozen=True)
class Stride:
    """One axis of a tensor that is read: the index along it, ``coordinate`` of the output scaled, and its quads."""

    follows: Coordinate
    start: int
    step: int
    stride: int


@dataclass(frozen=True)
class Term:
    """A :class:`Digit` of ``follows`` or a :class:`Lookup` in ``table``, as the template wants it."""

    follows: Coordinate | None
    digit: Digit | None
    lookup: Lookup | None
    table: str
    type: str
    strides: tuple[Stride, ...]
    plane: int


@dataclass(frozen=True)
class SourceAxis:
    start: int
    terms: tuple[Term, ...]
    size: int
    stride: int


@variant("gather")
def gather_kernel(request: Request) -> Kernel:
    attributes, node, g, target = request.node.attributes, request.node, request.output.geometry, request.target
    assert isinstance(attributes, Gather)
    arguments = [request.operand(f"input{i}", i) for i in range(len(node.inputs) - len(node.step_inputs))]
    source, places = request.shape(0), coordinates(g.shape)

    def term(t: Digit | Lookup) -> Term:
        if isinstance(t, Digit):
            return Term(places[t.axis], t, None, "", "", (), 0)
        table, argument = request.shape(t.input), arguments[t.input]
        return Term(None, None, t, argument.name, argument.type, _strides(t.places, table, places), table.plane)

    axes = [
        SourceAxis(p.start, tuple(map(term, p.terms)), size, stride)
        for p, size, stride in zip(attributes.positions, source.shape, (*source.axis_strides, 0), strict=True)
    ]
    background = None if attributes.background is None else arguments[attributes.background]
    per_tile = items_per_tile(g.quads, target, 60)
    return Kernel(
        "gather",
        {
            "axes": axes,
            "fill": attributes.fill or 0,
            "background": background,
            "bounded": attributes.fill is not None or background is not None,
            "whole_quads": _moves_quads(attributes, source.shape, g.shape),
            "source": arguments[0],
            "plane": source.plane,
            "per_tile": per_tile,
            "dirty": True,
        },
        tuple(arguments),
        tiles=tile_count(g.quads, per_tile),
        local_size=target.local_size,
        value_type=vector_type(arguments[0].type),
    )


def _strides(maps: tuple[AxisMap, ...], table: Geometry, places: tuple[Coordinate, ...]) -> tuple[Stride, ...]:
    still = Coordinate("0")
    return tuple(
        Stride(still if m.axis is None else places[m.axis], m.start, m.step, stride)
        for m, stride in zip(maps, (*table.axis_strides, 0), strict=False)
    )


def _moves_quads(attributes: Gather, source: Shape, output: Shape) -> bool:
    """Whether the four channels of an output quad are always four channels of one source quad, in order."""
    channel, last = len(output) - 1, attributes.positions[-1]
    own = next((t for t in last.terms if isinstance(t, Digit) and t.axis == channel and t.divisor == 1), None)
    if own is None or own.step != 1 or own.shift % LANES or own.modulus % LANES or last.start % LANES:
        return False
    # A quad at the end of the source mixes channels with lanes that are none.
    cut = attributes.background is not None or bool(attributes.fill)
    if cut and (last != follow(channel) or source[-1] != output[-1]):
        return False
    others = [t for p in attributes.positions for t in p.terms if t is not own]
    offsets = [t for t in last.terms if t is not own]
    in_step = all(isinstance(t, Digit) and t.step % LANES == 0 for t in offsets)
    return in_step and all(_still(t, channel) for t in others)


def _still(term: Digit | Lookup, channel: int) -> bool:
    """Whether a term is the same for all channels of a quad."""
    if isinstance(term, Digit):
        return term.axis != channel or (term.divisor % LANES == 0 and term.shift % LANES == 0)
    return all(m.axis != channel for m in term.places)
