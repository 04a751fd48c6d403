"""Operators that move elements and compute nothing, and any sequence of them as one movement along strides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from tflgpu.graph.ir import Array, Tensor
from tflgpu.graph.layout import Shape
from tflgpu.ops.declaration import ANY, Emitter, Site, declare, judged, normal_axis, numbers, static


@dataclass(frozen=True)
class Factor:
    """A digit of the index of an output element, ``extent`` values, each ``stride`` input elements after the last."""

    extent: int
    stride: int


@dataclass(frozen=True)
class Strided:
    """Output element i, in row-major order, is an input element, in row-major order.

    That is ``start`` plus each digit of i times its stride. Shapes do not matter: the digits are those of the factors,
    the first of which is the most significant. No two neighbours could be one.
    """

    factors: tuple[Factor, ...]
    start: int = 0

    def is_reshape(self, size: int) -> bool:
        """Whether it takes each element of an input, in their order.

        Args:
            size: Elements of the input.
        """
        return self == whole(size)


def whole(size: int) -> Strided:
    """Return all elements of a tensor in their order.

    Args:
        size: Elements of the tensor.
    """
    return Strided(_joined([Factor(size, 1)]))


def rearranged(view: Strided, shape: Shape, attributes: Rearrange, result: Shape) -> Strided | None:
    """Return a rearrangement of a view; None if strides cannot tell it.

    Args:
        view: The view of a tensor.
        shape: The view's.
        attributes: The rearrangement of the view.
        result: The rearrangement's shape.
    """
    axes = axes_of(view, shape)
    if axes is None or attributes.fill is not None:
        return None
    start, moved = view.start, list[tuple[Factor, ...]]([(Factor(extent, 0),) for extent in result])
    followed = [m.axis for m in attributes.axes if m.axis is not None]
    if len(set(followed)) < len(followed):
        return None
    for m, size, factors in zip(attributes.axes, shape, axes, strict=True):
        extent = result[m.axis] if m.axis is not None else 1
        if (m.start, m.step, extent) == (0, 1, size):
            taken = factors
        elif len(factors) <= 1:
            stride = factors[0].stride if factors else 0
            start, taken = start + m.start * stride, (Factor(extent, m.step * stride),)
        else:
            return None
        if m.axis is not None:
            moved[m.axis] = taken
    return Strided(_joined([f for factors in moved for f in factors]), start)


def composed(first: Strided, second: Strided) -> Strided | None:
    """Return both in turn; None if strides cannot tell it.

    Args:
        first: A view of a tensor.
        second: A view of that. It may repeat elements, but has to take all that the first one leaves.
    """
    order = _by_stride(replace(second, factors=tuple(f for f in second.factors if f.stride)))
    axes = axes_of(first, tuple(f.extent for f in order)) if order is not None else None
    if order is None or axes is None:
        return None
    parts = dict(zip(order, axes, strict=True))
    return Strided(_joined([part for f in second.factors for part in parts.get(f, (f,))]), first.start)


def broadcast(shape: Shape, result: Shape) -> Strided:
    """Return a broadcast as a view.

    Args:
        shape: The tensor's.
        result: The shape to which it broadcasts.
    """
    own = (1,) * (len(result) - len(shape)) + tuple(shape)
    strides = [prod(own[i + 1 :]) if n > 1 else 0 for i, n in enumerate(own)]
    return Strided(_joined([Factor(n, stride) for n, stride in zip(result, strides, strict=True)]))


def inverse(strided: Strided) -> Strided | None:
    """Return what moves all elements back; None if some are left out."""
    order = _by_stride(strided)
    if order is None:
        return None
    places = {f: prod(g.extent for g in strided.factors[i + 1 :]) for i, f in enumerate(strided.factors)}
    return Strided(_joined([Factor(f.extent, places[f]) for f in order]))


def _by_stride(strided: Strided) -> list[Factor] | None:
    """Return the factors as digits of the input's index; None if some input element is left out, or taken twice."""
    order = sorted(strided.factors, key=lambda f: -f.stride)
    places = [prod(f.extent for f in order[i + 1 :]) for i in range(len(order))]
    return order if strided.start == 0 and [f.stride for f in order] == places else None


def _joined(factors: Sequence[Factor]) -> tuple[Factor, ...]:
    """Without factors of one value; neighbours that are one."""
    result: list[Factor] = []
    for factor in factors:
        if factor.extent == 1:
            continue
        if result and result[-1].stride == factor.stride * factor.extent:
            factor = Factor(result.pop().extent * factor.extent, factor.stride)
        result.append(factor)
    return tuple(result)


def axes_of(strided: Strided, shape: Shape) -> list[tuple[Factor, ...]] | None:
    """Return the factors of each axis of a result of ``shape``; None if one has part of a factor that is no digit."""
    rest, axes = list(strided.factors), list[tuple[Factor, ...]]()
    for size in reversed(shape):
        taken: list[Factor] = []
        while size > 1:
            last = rest.pop()
            if last.extent > size:
                if last.extent % size:
                    return None
                rest.append(Factor(last.extent // size, last.stride * size))
                last = Factor(size, last.stride)
            elif size % last.extent:
                return None
            taken.insert(0, last)
            size //= last.extent
        axes.insert(0, tuple(taken))
    return axes


def evaluate_strided(attributes: Strided, x: Array, shape: Shape) -> Array:
    """Return the result of a ``strided`` node, in numpy.

    Args:
        attributes: The node's.
        x: Its input.
        shape: The result's.
    """
    index = np.full(1, attributes.start)
    for f in attributes.factors:
        index = (index[:, None] + np.arange(f.extent) * f.stride).reshape(-1)
    result: Array = x.reshape(-1)[index].reshape(shape)
    return result


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


def evaluate_rearranged(attributes: Rearrange, x: Array, shape: Shape) -> Array:
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
