"""Operators that move elements and compute nothing: reshapes, transposes and concatenation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tflgpu.graph.ir import Tensor
from tflgpu.graph.layout import Shape
from tflgpu.ops.declaration import (
    ANY,
    Array,
    Emitter,
    Site,
    declare,
    judged,
    normal_axis,
    numbers,
    static,
)


@dataclass(frozen=True)
class AxisMap:
    """An input coordinate: ``start + step * (output coordinate of axis)``; just ``start`` if ``axis`` is None."""

    axis: int | None
    start: int = 0
    step: int = 1


@dataclass(frozen=True)
class Rearrange:
    """Each output element is one input element, or ``fill`` where a coordinate lies outside of the input.

    axes: one map for each input axis.
    """

    axes: tuple[AxisMap, ...]
    fill: float | int | None = None


def slice_start(movement: Rearrange, shape: Shape, taken: Shape, axis: int) -> int | None:
    """Return where a slice begins; None if a movement takes anything else.

    Args:
        movement: The movement.
        shape: The tensor's.
        taken: The result's.
        axis: Along which the slice is.
    """
    if axis >= len(shape):
        return None
    start = movement.axes[axis].start
    others = all(m == AxisMap(i, start if i == axis else 0) for i, m in enumerate(movement.axes))
    same = shape[:axis] + shape[axis + 1 :] == taken[:axis] + taken[axis + 1 :]
    return start if others and same and 0 <= start <= shape[axis] - taken[axis] else None


@dataclass(frozen=True)
class Concatenate:
    """The inputs one after another along ``axis``; their other axes are equal."""

    axis: int


def reshape_node(emit: Emitter, x: Tensor, shape: Shape) -> Tensor:
    """Return a tensor with the same elements in the same order; the tensor itself if it has the shape already.

    Args:
        emit: Gets the node.
        x: The tensor.
        shape: The result's.
    """
    return x if x.shape == shape else emit.node("reshape", [x], shape)


def _squeezed(site: Site) -> Shape | None:
    shape = site.input(0).shape
    axes = {normal_axis(a, len(shape)) for a in site.options.get("squeeze_dims", ())}
    if None in axes or any(shape[a] != 1 for a in axes if a is not None):
        return None
    return tuple(d for i, d in enumerate(shape) if (i not in axes if axes else d != 1))


def _squeeze_reasons(site: Site) -> Iterator[str]:
    if _squeezed(site) is None:
        yield f"its axes {list(site.options['squeeze_dims'])} are not all of size 1 in {list(site.input(0).shape)}"


@declare("SQUEEZE", versions=2, inputs=1, types=ANY, by_parts=True, reasons=_squeeze_reasons)
def squeeze(site: Site, emit: Emitter) -> Tensor:
    """Return the input without axes of size 1."""
    return emit.node("reshape", [site.input(0)], judged(_squeezed(site)))


def _transpose_reasons(site: Site) -> Iterator[str]:
    yield from static(site, 1, "permutation")
    order, rank = site.constant(1), len(site.input(0).shape)
    if order is not None and order.ndim != 1:
        yield f"its permutation has shape {list(order.shape)}; one axis was expected"
    elif order is not None and sorted(o % rank if rank else o for o in order.tolist()) != list(range(rank)):
        yield f"its permutation {order.tolist()} does not name each of {rank} axes once"


@declare("TRANSPOSE", versions=9, inputs=2, integers=(1,), types=ANY, by_parts=True, reasons=_transpose_reasons)
def transpose(site: Site, emit: Emitter) -> Tensor:
    """Return the input with its axes in another order."""
    x = site.input(0)
    source = [o % len(x.shape) for o in numbers(site, 1)]
    axes = tuple(AxisMap(source.index(i)) for i in range(len(source)))
    return emit.node("rearrange", [x], tuple(x.shape[i] for i in source), Rearrange(axes))


def mixed_types(site: Site) -> Iterator[str]:
    """Yield the obstacle that inputs, which a kernel joins, have different element types."""
    types = sorted({t.dtype for t in site.inputs if t is not None})
    if len(types) > 1:
        yield f"its inputs are {' and '.join(types)}; one element type was expected"


def evaluate(attributes: Rearrange, x: Array, shape: Shape) -> Array:
    """Return the result of a ``rearrange`` node, in numpy.

    Args:
        attributes: The node's.
        x: Its input.
        shape: The result's.
    """
    index: list[Array] = []
    inside = np.ones(shape, bool)
    for size, m in zip(x.shape, attributes.axes, strict=True):
        coordinate = (
            np.zeros((1,) * len(shape), np.int64)
            if m.axis is None
            else np.arange(shape[m.axis]).reshape([-1 if i == m.axis else 1 for i in range(len(shape))])
        )
        position = np.broadcast_to(m.start + m.step * coordinate, shape)
        inside &= (position >= 0) & (position < size)
        index.append(np.clip(position, 0, size - 1))
    taken = x[tuple(index)] if index else np.broadcast_to(x, shape)
    return taken if attributes.fill is None else np.where(inside, taken, x.dtype.type(attributes.fill))
