"""CUMSUM, TOPK_V2, BUCKETIZE and the places of WHERE: each result depends on many elements, and on their order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Literal

import numpy as np

from tflgpu.graph.ir import Array, EpilogueOp, Input, Tensor, Value
from tflgpu.ops.arithmetic.reduction import single_axis, single_axis_reasons, widened
from tflgpu.ops.declaration import NUMBERS, Emitter, Site, declare, judged, numbers, sized, static
from tflgpu.ops.movement.shaping import AxisMap, Rearrange, reshape_node
from tflgpu.ops.sized import Number, Refused, Results, SizedOperation

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
    """Return what a node of :class:`TopK` gives of a constant, in numpy.

    Args:
        attributes: The node's.
        x: The constant.
        count: Elements to take along the last axis.
    """
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
    """Return the places of the elements that are true or not 0, in row-major order, and their number.

    Args:
        emit: Gets the nodes.
        x: Any tensor.

    Returns:
        A list with one entry for each element of ``x``, of which those past the number of true elements have no
            meaning,
        but are in range; and a scalar of int32.
    """
    # Booleans are 1, but 255 in the simulator Oclgrind.
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


def _sized_top_k(op: SizedOperation) -> Results | None:
    x, last = op.input(0), len(op.input(0).shape) - 1
    known = dict(op.open(0))
    if op.site.constant(1) is not None and last not in known:
        return None
    if last < 0 or len(op.amounts(1)) != 1:
        raise Refused("its k is not one number, or its input has no axes")
    (k,) = op.amounts(1)
    if k.known is not None:
        raise Refused("it takes a known number of elements of a size that only a run can tell")
    if last in known:
        least = np.nan if np.dtype(x.dtype).kind == "f" else np.iinfo(x.dtype).min
        x = op.sizes.masked(op.emit, x, (last,), least)
    size = op.number(k, x.shape[-1])
    most = op.emit.constant(np.array(min(x.shape[-1], size.high or x.shape[-1]), np.int32))
    known[last] = size
    return [op.noted(result, known) for result in op.declared(_0=x, _1=most)]


@declare("TOPK_V2", versions=3, inputs=2, integers=(1,), types=NUMBERS, reasons=_top_k_reasons, sized=_sized_top_k)
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


@sized("WHERE")
def where(op: SizedOperation) -> Results | None:
    """Return the places of all true elements, as many as there are."""
    if len(op.site.inputs) != 1 or op.site.inputs[0] is None:
        raise Refused("it has not one input")
    condition = op.input(0)
    shape = condition.shape
    if condition.dtype not in ("bool", "float32", "int32") or condition.size == 0 or not shape:
        raise Refused(f"its condition is {condition.dtype} of shape {list(shape)}")
    key = "where", condition.id
    condition = op.sizes.masked(op.emit, condition, op.open(0), 0)
    emit = op.emit
    places, last = true_places(emit, condition)
    size = op.sizes.once(key, lambda: Number(last.id, 0, last, 0, condition.size))
    long = EpilogueOp("to_long", (Value(0),))
    if len(shape) == 1:
        result = emit.node("map", [places], places.shape, None, (long,), "int64")
        return op.noted(reshape_node(emit, result, (condition.size, 1)), {0: size})
    strides = np.array([prod(shape[axis + 1 :]) for axis in range(len(shape))], np.int32)
    columns = emit.node("map", [reshape_node(emit, places, (condition.size, 1))], (condition.size, len(shape)))
    others = emit.constant(strides.reshape(1, -1)), emit.constant(np.array(shape, np.int32).reshape(1, -1))
    split = EpilogueOp("floor_div", (Value(0), Input(1))), EpilogueOp("floor_mod", (Value(1), Input(2)))
    wide = EpilogueOp("to_long", (Value(2),))
    return op.noted(emit.node("map", [columns, *others], columns.shape, None, (*split, wide), "int64"), {0: size})
