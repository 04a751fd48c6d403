"""Reductions over any axes, softmax, ARG_MAX, ARG_MIN, norms. Sums of floats are computed in float, not in half."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from tflgpu.graph.ir import Array, EpilogueOp, Input, Tensor, Value
from tflgpu.graph.layout import Shape
from tflgpu.model.model import DTYPES
from tflgpu.ops.declaration import FLOATS, NUMBERS, Emitter, Site, declare, judged, normal_axis, numbers, static
from tflgpu.ops.limits import made_reasons
from tflgpu.ops.movement.shaping import reshape_node
from tflgpu.ops.sized import Refused, Results, SizedOperation


@dataclass(frozen=True)
class Reduce:
    """A reduction over ``axes`` (non-negative, sorted), which stay with size 1. function: a value of REDUCERS."""

    function: str
    axes: tuple[int, ...]


REDUCERS = {
    name if name in ("MEAN", "SUM") else f"REDUCE_{name}": name.lower()
    for name in ("MEAN", "SUM", "MAX", "MIN", "PROD", "ANY", "ALL")
}

# The element types of reductions that do not take all numbers. Sums of 8 and 16 bits mean something to LiteRT for
# quantized numbers only: of others its kernels give the least number, or 0.
TYPES = {
    **dict.fromkeys(("any", "all"), frozenset(("bool",))),
    "mean": FLOATS | {"int32", "int64"},
    "sum": FLOATS | {"int32", "int64", "bool"},
    **dict.fromkeys(("max", "min", "prod"), NUMBERS | {"bool"}),
}

# The reductions of booleans that take the place of reductions of numbers.
OF_BOOLEANS = {"sum": "any", "max": "any", "min": "all", "prod": "all"}

# Results over no elements. As in TFLite, they are never infinite, and means are for floats only.
OF_NOTHING: dict[str, Callable[[np.dtype[Any]], float]] = {
    "sum": lambda _: 0,
    "prod": lambda _: 1,
    "any": lambda _: 0,
    "all": lambda _: 1,
    "max": lambda dtype: _limits(dtype).min,
    "min": lambda dtype: _limits(dtype).max,
    "mean": lambda _: np.nan,
}


def _limits(dtype: np.dtype[Any]) -> np.finfo[Any] | np.iinfo[Any]:
    return np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)


def evaluate(function: str, x: Array, axes: tuple[int, ...]) -> Array:
    """Return what a node of :class:`Reduce` computes of a constant: floats in double, integers in 64 bits.

    Args:
        function: The node's.
        x: The constant.
        axes: Those that become 1.
    """
    wide: Array = x if x.dtype.kind == "b" else x.astype(np.float64 if x.dtype.kind == "f" else np.int64)
    if function == "mean" and wide.dtype.kind == "i":  # truncated, as in TFLite
        total, count = np.sum(wide, axes, keepdims=True), prod(x.shape[a] for a in axes)
        return np.asarray(total // count + ((total < 0) & (total % count != 0)))
    if function == "sum_of_squares":
        return np.asarray(np.sum(np.square(wide), axes, keepdims=True))
    reducer: Callable[..., Array] = getattr(np, function)
    return np.asarray(reducer(wide, axis=axes, keepdims=True))


@dataclass(frozen=True)
class Softmax:
    """exp(beta * x) / sum(exp(beta * x)) over the last axis; its logarithm if ``log``.

    shares: of x, which is their sum; they lie one after the other along the first axis. sum_epilogue: ops that x is
    then changed by; they read no inputs.
    """

    beta: float
    log: bool = False
    shares: int = 1
    sum_epilogue: tuple[EpilogueOp, ...] = ()


@dataclass(frozen=True)
class ArgExtreme:
    """The first index of the greatest (or least) element along ``axis``, which stays with size 1."""

    axis: int
    greatest: bool


def _listed_axes(site: Site) -> list[int | None]:
    """Return the axes in the constant input 1, as non-negative numbers; None for each that input 0 does not have."""
    return [normal_axis(a, len(site.input(0).shape)) for a in numbers(site, 1)]


def _reduced_shape(site: Site, axes: Collection[int]) -> Shape:
    """Return the shape of input 0 reduced over ``axes``; these stay with size 1 if the operator keeps dimensions."""
    shape = enumerate(site.input(0).shape)
    if site.options.get("keep_dims"):
        return tuple(1 if i in axes else d for i, d in shape)
    return tuple(d for i, d in shape if i not in axes)


def reduction_axes(site: Site) -> tuple[int, ...] | None:
    """Return the axes to reduce over, sorted; None if they are unknown, or if one is not an axis of the input.

    Axes that are computed at run time are known if there are none, or as many as the input has: TensorFlow does not
    allow one twice. The declared shape does not tell which they are: LiteRT goes by the axes, whatever the file says.
    """
    if site.constant(1) is not None:
        axes = {a for a in _listed_axes(site) if a is not None}
        return tuple(sorted(axes)) if None not in _listed_axes(site) else None
    rank = len(site.input(0).shape)
    return tuple(range(rank)) if site.input(1).size == rank else None


def _reasons(site: Site) -> Iterator[str]:
    shape, axes, function = site.input(0).shape, reduction_axes(site), REDUCERS[site.code]
    if axes is None and site.constant(1) is None:
        yield "its axes (input 1) are computed at run time"
    elif axes is None:
        yield f"its axes {numbers(site, 1)} are not all axes of its input {list(shape)}"
    elif 0 in shape and function == "mean" and site.input(0).dtype not in FLOATS:
        yield f"its {function} of an input of shape {list(shape)} has no value"
    elif 0 in shape:
        yield from made_reasons(prod(_reduced_shape(site, axes)))


def _reduction(site: Site, emit: Emitter) -> Tensor:
    x, axes, function = site.input(0), judged(reduction_axes(site)), REDUCERS[site.code]
    function = OF_BOOLEANS.get(function, function) if x.dtype == "bool" else function
    shape = _reduced_shape(site, axes)
    if x.size == 0:
        return emit.constant(np.full(shape, OF_NOTHING[function](np.dtype(x.dtype)), x.dtype))
    if function == "mean" and x.dtype == "int32":  # the sum outgrows 32 bits
        wide = emit.node("map", [x], x.shape, None, widened("int64"), "int64")
        narrow = (EpilogueOp("to_int", (Value(0),)),)
        return reshape_node(emit, reduce_node(emit, wide, function, axes, narrow, "int32"), shape)
    return reshape_node(emit, reduce_node(emit, x, function, axes), shape)


def reduce_node(
    emit: Emitter,
    x: Tensor,
    function: str,
    axes: tuple[int, ...],
    epilogue: tuple[EpilogueOp, ...] = (),
    dtype: str | None = None,
) -> Tensor:
    """Return a tensor that is reduced over some axes, which stay with size 1.

    Args:
        emit: Gets the node.
        x: The tensor.
        function: One of :class:`Reduce`.
        axes: Not negative, in order.
        epilogue: Ops on the result.
        dtype: The type after the epilogue; None for that of ``x``.
    """
    kept = tuple(1 if i in axes else d for i, d in enumerate(x.shape))
    return emit.node("reduce", [x], kept, Reduce(function, axes), epilogue, dtype)


def _sized_mean(op: SizedOperation) -> Results | None:
    """Return the mean of a copy with zeros, whose divisor is corrected."""
    x, own = op.input(0), op.open(0)
    axes = op.site.constant(1)
    if not own or axes is None:
        return None
    over = [axis for axis in own if axis in {int(a) % len(x.shape) for a in axes.reshape(-1)}]
    if not over:
        return None
    if x.dtype != "float32":
        raise Refused("the mean of integers of a size that only a run can tell")
    (result,) = op.declared(_0=op.sizes.masked(op.emit, x, over, 0))
    for axis in over:
        most = op.emit.constant(np.array(x.shape[axis], np.float32))
        size = op.emit.node(
            "map", [own[axis].tensor], (), None, (EpilogueOp("to_float", (Value(0),)),), "float32", precise=True
        )
        steps = EpilogueOp("mul", (Value(0), Input(1))), EpilogueOp("div", (Value(1), Input(2)))
        result = op.emit.node("map", [result, most, size], result.shape, None, steps)
    return result


for _code, _function in REDUCERS.items():
    declare(
        _code,
        versions=3,
        inputs=2,
        integers=(1,),
        types=TYPES[_function],
        reasons=_reasons,
        sized=_sized_mean if _function == "mean" else None,
    )(_reduction)


def single_axis(site: Site) -> int | None:
    """Return the one axis in the constant input 1, as a non-negative number; None if it is not an axis of input 0."""
    axes = _listed_axes(site)
    return axes[0] if len(axes) == 1 else None


def single_axis_reasons(site: Site) -> Iterator[str]:
    """Obstacles in the input that :func:`single_axis` reads."""
    yield from static(site, 1, "axis")
    if site.constant(1) is not None and single_axis(site) is None:
        yield f"its axis is no axis of its input {list(site.input(0).shape)}"


def _index_type(site: Site) -> str | None:
    """LiteRT goes by the option, not by what the file declares of the result."""
    return DTYPES.get(site.options.get("output_type", 0))


def _arg_extreme_reasons(site: Site) -> Iterator[str]:
    if _index_type(site) not in ("int32", "int64"):
        yield "its result is neither int32 nor int64"
    yield from single_axis_reasons(site)
    axis = single_axis(site) if site.constant(1) is not None else None
    if axis is not None and site.input(0).shape[axis] == 0:
        yield f"its input of shape {list(site.input(0).shape)} has nothing to choose from"


def widened(dtype: str) -> tuple[EpilogueOp, ...]:
    """Return the ops after a kernel that computes indices in 32 bits.

    Args:
        dtype: The type that the indices are to have.
    """
    return (EpilogueOp("to_long", (Value(0),)),) if dtype == "int64" else ()


@declare("ARG_MAX", versions=3, inputs=2, integers=(1,), types=NUMBERS | {"bool"}, reasons=_arg_extreme_reasons)
@declare("ARG_MIN", versions=3, inputs=2, integers=(1,), types=NUMBERS | {"bool"}, reasons=_arg_extreme_reasons)
def arg_extreme(site: Site, emit: Emitter) -> Tensor:
    """Return the places of the greatest or least elements along an axis."""
    x, axis, dtype = site.input(0), judged(single_axis(site)), judged(_index_type(site))
    before, after = x.shape[:axis], x.shape[axis + 1 :]
    attributes = ArgExtreme(axis, greatest=site.code == "ARG_MAX")
    y = emit.node("arg_extreme", [x], (*before, 1, *after), attributes, widened(dtype), dtype)
    return reshape_node(emit, y, before + after)


@declare("SOFTMAX", versions=4, inputs=1)
def softmax(site: Site, emit: Emitter) -> Tensor:
    """Softmax along the last axis."""
    x = site.input(0)
    return emit.node("softmax", [x], x.shape, Softmax(float(site.options.get("beta", 0.0))))


@declare("LOG_SOFTMAX", versions=2, inputs=1)
def log_softmax(site: Site, emit: Emitter) -> Tensor:
    """Logarithm of softmax along the last axis."""
    x = site.input(0)
    return emit.node("softmax", [x], x.shape, Softmax(1.0, log=True))


# The least divisor in TFLite: channels may all be zero.
LEAST_NORM = 1e-6


@dataclass(frozen=True)
class LocalResponse:
    """``x * (bias + alpha * sum of squares of channels c - radius to c + radius) ** -beta``."""

    radius: int
    bias: float
    alpha: float
    beta: float


def _rank_reasons(site: Site) -> Iterator[str]:
    if not site.input(0).shape:
        yield "its input has no axes"


@declare("L2_NORMALIZATION", versions=2, inputs=1, reasons=_rank_reasons)
def l2_normalization(site: Site, emit: Emitter) -> Tensor:
    """One node computes the norm over the last axis, so that no square is stored in half precision.

    ``maximum`` gives its second operand if either is NaN: a norm that is none stays none.
    """
    x, least = site.input(0), emit.constant(np.array(LEAST_NORM, np.float32))
    epilogue = (EpilogueOp("sqrt", (Value(0),)), EpilogueOp("maximum", (Input(1), Value(1))))
    axes = (len(x.shape) - 1,)
    norm = emit.node("reduce", [x, least], (*x.shape[:-1], 1), Reduce("sum_of_squares", axes), epilogue)
    quotient = EpilogueOp("div", (Value(0), Input(1)))
    return emit.node("map", [x, norm], x.shape, epilogue=(quotient, *emit.activation(site, after=1)))


@declare("LOCAL_RESPONSE_NORMALIZATION", versions=1, inputs=1, reasons=_rank_reasons)
def local_response_normalization(site: Site, emit: Emitter) -> Tensor:
    """Each element divided by a power of the squares of its neighbouring channels."""
    x, option = site.input(0), site.options.get
    radius = min(int(option("radius", 0)), x.shape[-1])  # a larger one sees no more channels
    bias, alpha, beta = (float(option(name, 0.0)) for name in ("bias", "alpha", "beta"))
    attributes = LocalResponse(radius, bias, alpha, beta)
    return emit.node("local_response", [x], x.shape, attributes)


@dataclass(frozen=True)
class LayerNorm:
    """``(x - mean) / sqrt(variance + epsilon)``, with mean and variance of the last axis.

    centered: whether the mean is taken away; else the variance is that around zero (RMSNorm).
    """

    epsilon: float
    centered: bool = True
