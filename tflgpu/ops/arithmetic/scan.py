"""CUMSUM, TOPK_V2, BUCKETIZE and the places of WHERE: each result depends on many elements, and on their order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tflgpu.graph.ir import Array, EpilogueOp, Input, Tensor, Value
from tflgpu.ops.arithmetic.reduction import single_axis, single_axis_reasons, widened
from tflgpu.ops.declaration import NUMBERS, Emitter, Site, declare, judged, numbers, static
from tflgpu.ops.movement.shaping import AxisMap, Rearrange, reshape_node

TYPES = frozenset(("float32", "int32", "int64"))


@dataclass(frozen=True)
class CumulativeSum:
    """Sums along ``axis`` (non-negative). ``exclusive``: without the element itself. ``reverse``: from the last one."""

    axis: int
    exclusive: bool
    reverse: bool


@dataclass(frozen=True)
class TopK:
    """The greatest elements of the last axis, or their indices, in descending order; the first of equal ones first.

    NaN comes after all numbers, as in TFLite.
    """

    result: Literal["values", "indices"]


def ranked(attributes: TopK, x: Array, count: int) -> Array:
    """Return what a node of :class:`TopK` gives of a constant, in numpy."""
    order = np.argsort(-x if x.dtype.kind == "f" else ~x, axis=-1, kind="stable")[..., :count]
    return np.take_along_axis(x, order, -1) if attributes.result == "values" else order


@dataclass(frozen=True)
class FirstAbove:
    """Search in a row of whole numbers that never decrease: for each place, the first place of a number above it.

    It is the last place where there is none.
    """


@dataclass(frozen=True)
class Buckets:
    """For each element of input 0, how many numbers of input 1, which never decrease, it is not below."""


@declare("CUMSUM", versions=1, inputs=2, integers=(1,), types=TYPES, reasons=single_axis_reasons)
def cumsum(site: Site, emit: Emitter) -> Tensor:
    """Compute running sums along an axis."""
    x, axis = site.input(0), judged(single_axis(site))
    exclusive, reverse = (bool(site.options.get(name)) for name in ("exclusive", "reverse"))
    return emit.node("cumulative_sum", [x], x.shape, CumulativeSum(axis, exclusive, reverse))


def true_places(emit: Emitter, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the places of the elements that are true or not 0, in row-major order, and their number, a scalar of
    int32.

    The list of places has one entry for each element of ``x``. Entries past the number of true elements have no
    meaning, but are in range.
    """
    # Truth values are 1, but 255 in the simulator Oclgrind.
    function, number = ("minimum", 1) if x.dtype == "bool" else ("not_equal", 0)
    inputs = [x, emit.constant(np.full((), number, "int32" if x.dtype == "bool" else x.dtype))]
    steps = (EpilogueOp(function, (Value(0), Input(1))),)
    truth = reshape_node(emit, emit.node("map", inputs, x.shape, None, steps, "int32"), (x.size,))
    sums = emit.node("cumulative_sum", [truth], (x.size,), CumulativeSum(0, exclusive=False, reverse=False))
    places = emit.node("first_above", [sums], (x.size,), FirstAbove())
    return places, emit.node("rearrange", [sums], (), Rearrange((AxisMap(None, x.size - 1),)))


def _top_k_reasons(site: Site) -> Iterator[str]:
    yield from static(site, 1, "k")
    k, shape = site.constant(1), site.input(0).shape
    if not {*site.output_types[1:]} <= {"int16", "int32"}:
        yield f"its indices are {site.output_types[1]}; int16 or int32 was expected"
    if not shape:
        yield "its input has no axes"
    elif k is not None and (k.size != 1 or not 0 <= k.reshape(-1)[0] <= shape[-1]):
        yield f"its k is {k.tolist()} for a last axis of {shape[-1]}"


@declare("TOPK_V2", versions=3, inputs=2, integers=(1,), types=NUMBERS, reasons=_top_k_reasons)
def top_k(site: Site, emit: Emitter) -> tuple[Tensor, Tensor]:
    """Return the greatest elements along the last axis, and their places."""
    x = site.input(0)
    shape = (*x.shape[:-1], *numbers(site, 1))
    values = emit.node("top_k", [x], shape, TopK("values"))
    dtype = site.output_types[1]
    return values, emit.node("top_k", [x], shape, TopK("indices"), widened(dtype), dtype)


@declare("BUCKETIZE", versions=1, inputs=1, types=frozenset(("float32", "int32", "int64")), empty=False)
def bucketize(site: Site, emit: Emitter) -> Tensor:
    """Return the numbers of the buckets, between boundaries, in which elements are; NaN is in the last one."""
    x = site.input(0)
    boundaries = np.array(site.options.get("boundaries", ()), np.float32)
    if boundaries.size == 0:
        return emit.node("map", [emit.constant(np.array(0, np.int32))], x.shape)
    if x.dtype != "float32":
        x = emit.node("map", [x], x.shape, None, (EpilogueOp("to_float", (Value(0),)),), "float32", precise=True)
    return emit.node("buckets", [x, emit.constant(boundaries)], x.shape, Buckets(), dtype="int32")
