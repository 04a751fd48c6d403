"""Any sequence of reshapes, transposes and slices as one movement: by strides in row-major order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from tflgpu.graph.ir import Array
from tflgpu.graph.layout import Shape
from tflgpu.ops.movement.shaping import Rearrange


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


def evaluate(attributes: Strided, x: Array, shape: Shape) -> Array:
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
