"""The ``gather`` node, and operators that look elements up by tensors of indices.

An index that is known only at run time is clamped to its axis. TFLite reports an error for an index out of range; a
kernel cannot report one, and must not read outside of the tensor. ``Numerics(checks=True)`` finds it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tflgpu.graph.ir import Array, Tensor
from tflgpu.graph.layout import Shape
from tflgpu.ops.checks import index_check
from tflgpu.ops.declaration import (
    ANY,
    INTEGERS,
    Check,
    Emitter,
    Site,
    axis_option,
    declare,
    judged,
    numbers,
    static,
)
from tflgpu.ops.movement.shaping import AxisMap, reshape_node


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


def evaluate_gather(attributes: Gather, inputs: Sequence[Array], shape: Shape) -> Array:
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


def _index_reasons(site: Site, index: int) -> Iterator[str]:
    dtype = site.input(index).dtype
    if dtype not in INTEGERS:
        yield f"its indices have element type {dtype}; an integer type was expected"


def _range_reasons(indices: Array | None, limits: Array) -> Iterator[str]:
    if indices is not None and np.any((indices < 0) | (indices > limits)):
        yield f"its indices are from {indices.min()} to {indices.max()}, but those of the input end at {limits}"


def _gather_axes(site: Site) -> tuple[int, int] | None:
    """(axis, batch_dims), both non-negative; None if they do not fit the inputs."""
    x, indices = site.input(0).shape, site.input(1).shape
    axis, batch = axis_option(site), site.options.get("batch_dims", 0)
    batch += len(indices) if batch < 0 else 0
    if axis is None or not 0 <= batch <= min(axis, len(indices)) or x[:batch] != indices[:batch]:
        return None
    return axis, batch


def _gather_reasons(site: Site) -> Iterator[str]:
    yield from _index_reasons(site, 1)
    x, indices, axes = site.input(0).shape, site.input(1).shape, _gather_axes(site)
    if axes is None:
        axis, batch = site.options.get("axis", 0), site.options.get("batch_dims", 0)
        yield f"its axis {axis} and batch_dims {batch} do not fit inputs of shapes {list(x)} and {list(indices)}"
    else:
        yield from _range_reasons(site.constant(1), np.array(x[axes[0]] - 1))


def _gather_checks(site: Site, emit: Emitter) -> Iterator[Check]:
    axis, _ = judged(_gather_axes(site))
    return index_check(emit, site, 1, np.array(site.input(0).shape[axis] - 1))


@declare("GATHER", versions=8, inputs=2, integers=(1,), types=ANY, reasons=_gather_reasons, checks=_gather_checks)
def gather(site: Site, emit: Emitter) -> Tensor:
    """Slices of the input at indices along an axis."""
    return _gather_node(emit, site.input(0), site.input(1), *judged(_gather_axes(site)))


def _gather_node(emit: Emitter, x: Tensor, indices: Tensor, axis: int, batch: int) -> Tensor:
    """Return a node whose result has the axes ``x[:axis] + indices[batch:] + x[axis + 1:]``. batch: number of batch
    axes."""
    new = len(indices.shape) - batch
    places = (*(AxisMap(i) for i in range(batch)), *(AxisMap(axis + i) for i in range(new)))
    positions = [follow(i if i < axis else i - 1 + new) for i in range(len(x.shape))]
    positions[axis] = Position((Lookup(1, places, x.shape[axis] - 1),))
    shape = (*x.shape[:axis], *indices.shape[batch:], *x.shape[axis + 1 :])
    return emit.node("gather", [x, _short(emit, indices)], shape, Gather(tuple(positions)))


def _short(emit: Emitter, indices: Tensor) -> Tensor:
    """Constant indices in 32 bits, which every device computes with. They are places along an axis, so they fit."""
    if indices.data is None or indices.dtype != "int64":
        return indices
    return emit.constant(indices.data.astype(np.int32))


def _embedding_reasons(site: Site) -> Iterator[str]:
    yield from _index_reasons(site, 0)
    ids, table = site.input(0).shape, site.input(1).shape
    if len(ids) != 1 or len(table) < 2:
        yield f"its ids {list(ids)} and table {list(table)} have other than one axis, or less than two"
    else:
        yield from _range_reasons(site.constant(0), np.array(table[0] - 1))


def _embedding_checks(site: Site, emit: Emitter) -> Iterator[Check]:
    return index_check(emit, site, 0, np.array(site.input(1).shape[0] - 1))


@declare(
    "EMBEDDING_LOOKUP",
    versions=5,
    inputs=2,
    integers=(0,),
    types=ANY,
    reasons=_embedding_reasons,
    checks=_embedding_checks,
)
def embedding_lookup(site: Site, emit: Emitter) -> Tensor:
    """Rows of a table at indices."""
    return _gather_node(emit, site.input(1), site.input(0), 0, 0)


def _gather_nd_reasons(site: Site) -> Iterator[str]:
    yield from _index_reasons(site, 1)
    x, indices = site.input(0).shape, site.input(1).shape
    if not indices or indices[-1] > len(x):
        yield f"its indices of shape {list(indices)} have more coordinates than its input {list(x)} has axes"
    else:
        yield from _range_reasons(site.constant(1), np.array(x[: indices[-1]]) - 1)


def _gather_nd_checks(site: Site, emit: Emitter) -> Iterator[Check]:
    return index_check(emit, site, 1, np.array(site.input(0).shape[: site.input(1).shape[-1]]) - 1)


@declare(
    "GATHER_ND", versions=6, inputs=2, integers=(1,), types=ANY, reasons=_gather_nd_reasons, checks=_gather_nd_checks
)
def gather_nd(site: Site, emit: Emitter) -> Tensor:
    """Return the last axis of the indices holds coordinates along the first axes of ``x``."""
    x, indices = site.input(0), site.input(1)
    *leading, depth = indices.shape
    outer = tuple(AxisMap(i) for i in range(len(leading)))
    found = (Position((Lookup(1, (*outer, AxisMap(None, i)), x.shape[i] - 1),)) for i in range(depth))
    rest = (follow(len(leading) + i) for i in range(len(x.shape) - depth))
    return emit.node("gather", [x, _short(emit, indices)], (*leading, *x.shape[depth:]), Gather((*found, *rest)))


def _one_hot_reasons(site: Site) -> Iterator[str]:
    yield from _index_reasons(site, 0)
    yield from static(site, 1, "depth")
    yield from static(site, 3, "off value")
    if axis_option(site, new=1) is None:
        yield f"its axis {site.options.get('axis', 0)} is not an axis of its result"
    depth = site.constant(1)
    if depth is not None and (depth.size != 1 or depth.min() < 0):
        yield f"its depth {depth.tolist()} is not one number from 0 on"


@declare("ONE_HOT", versions=1, inputs=4, integers=(0, 1), types=ANY, reasons=_one_hot_reasons)
def one_hot(site: Site, emit: Emitter) -> Tensor:
    """Return the source has one element, the on value; the off value is the fill.

    The position is ``coordinate - index``: it lies inside of the source only if it is 0.
    """
    indices, axis = site.input(0), judged(axis_option(site, new=1))
    shape = (*indices.shape[:axis], *numbers(site, 1), *indices.shape[axis:])
    places = tuple(AxisMap(i if i < axis else i + 1) for i in range(len(indices.shape)))
    position = Position((Digit(axis), Lookup(1, places, None, step=-1)))
    source = reshape_node(emit, site.input(2), (1,))
    fill = site.known(3).reshape(-1)[0].item() + 0  # a boolean becomes a number
    return emit.node("gather", [source, indices], shape, Gather((position,), fill=fill))


def _update_reasons(site: Site) -> Iterator[str]:
    yield from _index_reasons(site, 2)
    x, update, start = site.input(0), site.input(1), site.input(2)
    if x.dtype != update.dtype:
        yield f"its update has element type {update.dtype}; its operand has {x.dtype}"
    if len(update.shape) != len(x.shape) or any(u > d for u, d in zip(update.shape, x.shape, strict=False)):
        yield f"its update of shape {list(update.shape)} does not fit into its operand of shape {list(x.shape)}"
    if start.shape != (len(x.shape),):
        yield f"its start indices have shape {list(start.shape)}; [{len(x.shape)}] was expected"


@declare("DYNAMIC_UPDATE_SLICE", versions=6, inputs=3, integers=(2,), types=ANY, reasons=_update_reasons)
def dynamic_update_slice(site: Site, emit: Emitter) -> Tensor:
    """Clamp starts so that the whole update fits, as in XLA's operator of this name."""
    x, update, start = site.input(0), site.input(1), site.input(2)
    if update.size == 0:
        return emit.node("map", [x], x.shape)
    rooms = [d - u for d, u in zip(x.shape, update.shape, strict=True)]
    positions = tuple(
        Position((Digit(i), Lookup(1, (AxisMap(None, i),), room, step=-1))) if room else follow(i)
        for i, room in enumerate(rooms)
    )
    return emit.node("gather", [update, start, x], x.shape, Gather(positions, background=2))


def _on_diagonal(rank: int) -> tuple[Position, ...]:
    """Positions in a diagonal of shape [..., size, 1]: outside of it for an element off the diagonal."""
    off = Position((Digit(rank - 1), Digit(rank - 2, step=-1)))
    return (*map(follow, range(rank - 1)), off)


def _diagonal_reasons(site: Site) -> Iterator[str]:
    if not site.input(0).shape:
        yield "its input has no axes"


@declare("MATRIX_DIAG", versions=1, inputs=1, types=ANY, empty=False, reasons=_diagonal_reasons)
def matrix_diag(site: Site, emit: Emitter) -> Tensor:
    """Square matrices with the elements of the last axis on their diagonals, and zeros elsewhere."""
    x = site.input(0)
    column = reshape_node(emit, x, (*x.shape, 1))
    return emit.node("gather", [column], (*x.shape, x.shape[-1]), Gather(_on_diagonal(len(x.shape) + 1), fill=0))


def _set_diagonal_reasons(site: Site) -> Iterator[str]:
    x, diagonal = site.input(0), site.input(1)
    if x.dtype != diagonal.dtype:
        yield f"its diagonal has element type {diagonal.dtype}; its input has {x.dtype}"
    if len(x.shape) < 2 or diagonal.shape != (*x.shape[:-2], min(x.shape[-2:])):
        yield f"its diagonal of shape {list(diagonal.shape)} does not fit its input of shape {list(x.shape)}"


@declare("MATRIX_SET_DIAG", versions=1, inputs=2, types=ANY, empty=False, reasons=_set_diagonal_reasons)
def matrix_set_diag(site: Site, emit: Emitter) -> Tensor:
    """Matrices with other elements on their diagonals."""
    x, diagonal = site.input(0), site.input(1)
    column = reshape_node(emit, diagonal, (*diagonal.shape, 1))
    positions = Gather(_on_diagonal(len(x.shape)), background=1)
    return emit.node("gather", [column, x], x.shape, positions)
