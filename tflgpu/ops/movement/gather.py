"""The ``gather`` node: arithmetic on coordinates and index tensors give the source of each element of its result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tflgpu.graph.layout import Shape
from tflgpu.ops.declaration import Array
from tflgpu.ops.movement.shaping import AxisMap


@dataclass(frozen=True)
class Digit:
    """``step * ((coordinate + shift) // divisor % modulus)`` of the output's coordinate along ``axis``.

    modulus: 0 for none. ``coordinate + shift`` must not be negative if there is a divisor or modulus.
    """

    axis: int
    step: int = 1
    shift: int = 0
    divisor: int = 1
    modulus: int = 0


@dataclass(frozen=True)
class Lookup:
    """``step`` times an element of the node's input ``input``, a tensor of integers.

    places: for each axis of that input, the coordinate to read, given the output's coordinates.
    limit: elements are clamped to ``0..limit``; None for no clamping.
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

    fill: the result where a position lies outside of input 0.
    background: number of an input of the output's shape, which has the result there instead. Without ``fill`` and
    ``background`` every position must lie inside.
    """

    positions: tuple[Position, ...]
    fill: float | int | None = None
    background: int | None = None


def follow(axis: int) -> Position:
    """Return the output's own coordinate along an axis.

    Args:
        axis: The output's.
    """
    return Position((Digit(axis),))


def evaluate(attributes: Gather, inputs: Sequence[Array], shape: Shape) -> Array:
    """Return the result of a ``gather`` node, in numpy.

    Args:
        attributes: The node's.
        inputs: The source, the indices, and perhaps a background.
        shape: The result's.
    """
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


def _term(term: Digit | Lookup, inputs: Sequence[Array], grid: tuple[Array, ...]) -> Array:
    if isinstance(term, Digit):
        digit = (grid[term.axis] + term.shift) // term.divisor
        result: Array = term.step * (digit % term.modulus if term.modulus else digit)
        return result
    at = tuple(m.start + (0 if m.axis is None else m.step * grid[m.axis]) for m in term.places)
    found = np.asarray(inputs[term.input][at], np.int64)
    return term.step * (found if term.limit is None else np.clip(found, 0, term.limit))
