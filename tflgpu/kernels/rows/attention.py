"""Attention as one node: what it computes, and where its kernels find the vec4s of rows.

``softmax(scale * queries * keys + mask) * values``, for each head. Its operands are read where they were computed, as
the heads of longer rows, and its result is stored so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd, prod

from tflgpu.graph.layout import LANES, Geometry, Shape
from tflgpu.kernels.access import BatchTerm
from tflgpu.kernels.kernel import Argument, Parameters
from tflgpu.kernels.request import Request
from tflgpu.ops.movement.shaping import Factor, Strided, axes_of


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
    """Reach into a tensor whose channels are whole vec4s. None if strides of vec4s do not tell it.

    shape: (heads, ..) of what ``strided`` makes of the tensor. axes: those of the rows and of the elements of a row.
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
    """Reach into a tensor in PHWC4 whose last axes are the rows and their elements.

    shape: of the tensor, with axes of size 1 where it is the same for all of ``leading``, the heads, or for all rows.
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
