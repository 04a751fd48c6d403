"""Reductions over any axes, softmax and ARG_MAX: each result depends on many elements. Float sums are never in half."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from math import prod
from typing import Any

import numpy as np

from tflgpu.ir import Step, Tensor
from tflgpu.layout import LANES, Shape
from tflgpu.ops.access import access
from tflgpu.ops.base import NUMBERS, Emit, Emitter, Site, declare, normal_axis, numbers, static
from tflgpu.ops.group_work import SPLITS, WARP, scratch
from tflgpu.ops.kernel import Kernel, Request, items_per_tile, tile_count, variant
from tflgpu.ops.shaping import reshape_node


@dataclass(frozen=True)
class Reduce:
    """Over ``axes`` (normal, sorted), which stay with size 1."""

    function: str
    axes: tuple[int, ...]


@dataclass(frozen=True)
class Combination:
    """How a reduction joins two elements, by OpenCL expressions.

    neutral: the value that changes no result, for float and int vectors.
    """

    expression: str
    neutral: tuple[str, str] = ("0", "0")


# sum_of_squares has no operator of its own: norms are made of it.
COMBINATIONS = {
    "mean": Combination("%s + %s"),
    "sum": Combination("%s + %s"),
    "sum_of_squares": Combination("%s + %s"),
    "max": Combination("max(%s, %s)", ("-INFINITY", "INT_MIN")),
    "min": Combination("min(%s, %s)", ("INFINITY", "INT_MAX")),
    "prod": Combination("%s * %s", ("1", "1")),
    "any": Combination("%s | %s"),
    "all": Combination("%s & %s", ("1", "1")),
}
REDUCERS = {
    "MEAN": "mean",
    "SUM": "sum",
    "REDUCE_MAX": "max",
    "REDUCE_MIN": "min",
    "REDUCE_PROD": "prod",
    "REDUCE_ANY": "any",
    "REDUCE_ALL": "all",
}
# The reductions of no elements that have a value; TFLite knows no infinities here.
OF_NOTHING: dict[str, Callable[[np.dtype[Any]], float]] = {
    "sum": lambda _: 0,
    "prod": lambda _: 1,
    "any": lambda _: 0,
    "all": lambda _: 1,
    "max": lambda dtype: _limits(dtype).min,
    "min": lambda dtype: _limits(dtype).max,
}


def _limits(dtype: np.dtype[Any]) -> np.finfo[Any] | np.iinfo[Any]:
    return np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)


@dataclass(frozen=True)
class Softmax:
    """Over the last axis: exp(beta * x) / sum(exp(beta * x)), or its logarithm."""

    beta: float
    log: bool = False


@dataclass(frozen=True)
class ArgExtreme:
    """The first index of the greatest (or least) element along ``axis``, which stays with size 1."""

    axis: int
    greatest: bool


def _listed_axes(site: Site) -> list[int | None]:
    """The axes that input 1, a constant, lists; None for each that input 0 does not have."""
    return [normal_axis(a, len(site.input(0).shape)) for a in numbers(site, 1)]


def _reduced_shape(site: Site, axes: Collection[int]) -> Shape:
    """The shape of input 0 reduced over ``axes``, with or without axes of size 1 in their places."""
    shape = enumerate(site.input(0).shape)
    if site.options.get("keep_dims"):
        return tuple(1 if i in axes else d for i, d in shape)
    return tuple(d for i, d in shape if i not in axes)


def _axes(site: Site) -> tuple[int, ...] | None:
    """The axes to reduce over, sorted; None if they are not known or not all axes of the input.

    Axes that are computed at run time are known by their number (TensorFlow lets none be listed twice) and by the
    result's shape, if no others lead to that shape.
    """
    if site.constant(1) is not None:
        axes = {a for a in _listed_axes(site) if a is not None}
        return tuple(sorted(axes)) if None not in _listed_axes(site) else None
    declared, rank = site.output_shapes[0], len(site.input(0).shape)
    candidates = combinations(range(rank), site.input(1).size)
    fitting = [c for c in candidates if declared is None or _reduced_shape(site, c) == declared]
    return fitting[0] if len(fitting) == 1 else None


def _reasons(site: Site, function: str) -> Iterator[str]:
    shape, axes = site.input(0).shape, _axes(site)
    if axes is None and site.constant(1) is None:
        yield "its axes (input 1) are computed at run time, and the shape of its result does not tell which they are"
    elif axes is None:
        yield f"its axes {numbers(site, 1)} are not all axes of its input {list(shape)}"
    elif 0 in shape and (0 in _reduced_shape(site, axes) or function not in OF_NOTHING):
        yield f"its {function} of an input of shape {list(shape)} has no value"


def _reduction(function: str) -> Emit:
    def emit_reduction(site: Site, emit: Emitter) -> Tensor:
        x, axes = site.input(0), _axes(site)
        assert axes is not None
        shape = _reduced_shape(site, axes)
        if x.size == 0:
            return emit.constant(np.full(shape, OF_NOTHING[function](np.dtype(x.dtype)), x.dtype))
        return reshape_node(emit, reduce_node(emit, x, function, axes), shape)

    return emit_reduction


def reduce_node(emit: Emitter, x: Tensor, function: str, axes: tuple[int, ...], steps: tuple[Step, ...] = ()) -> Tensor:
    """``x`` reduced over ``axes`` (normal, sorted), which stay with size 1."""
    kept = tuple(1 if i in axes else d for i, d in enumerate(x.shape))
    return emit.node("reduce", [x], kept, Reduce(function, axes), steps)


for _code, _function in REDUCERS.items():
    _types = frozenset(("bool",)) if _function in ("any", "all") else NUMBERS
    _obstacles = partial(_reasons, function=_function)
    declare(_code, versions=3, inputs=2, integers=(1,), types=_types, empty=True, reasons=_obstacles)(
        _reduction(_function)
    )


def single_axis(site: Site) -> int | None:
    """The one axis that input 1, a constant, names, None if it names none of input 0's."""
    axes = _listed_axes(site)
    return axes[0] if len(axes) == 1 else None


def single_axis_reasons(site: Site) -> Iterator[str]:
    """Obstacles in the input that :func:`single_axis` reads."""
    yield from static(site, 1, "axis")
    if site.constant(1) is not None and single_axis(site) is None:
        yield f"its axis is no axis of its input {list(site.input(0).shape)}"


def _arg_extreme(greatest: bool) -> Emit:
    def emit_arg_extreme(site: Site, emit: Emitter) -> Tensor:
        x, axis = site.input(0), single_axis(site)
        assert axis is not None
        before, behind = x.shape[:axis], x.shape[axis + 1 :]
        attributes = ArgExtreme(axis, greatest)
        y = emit.node("arg_extreme", [x], (*before, 1, *behind), attributes, dtype=site.output_types[0])
        return reshape_node(emit, y, before + behind)

    return emit_arg_extreme


for _code, _greatest in (("ARG_MAX", True), ("ARG_MIN", False)):
    declare(_code, versions=3, inputs=2, integers=(1,), types=NUMBERS | {"bool"}, reasons=single_axis_reasons)(
        _arg_extreme(_greatest)
    )


@declare("SOFTMAX", versions=4, inputs=1)
def softmax(site: Site, emit: Emitter) -> Tensor:
    x = site.input(0)
    return emit.node("softmax", [x], x.shape, Softmax(float(site.options.get("beta", 1.0))))


@declare("LOG_SOFTMAX", versions=2, inputs=1)
def log_softmax(site: Site, emit: Emitter) -> Tensor:
    x = site.input(0)
    return emit.node("softmax", [x], x.shape, Softmax(1.0, log=True))


@variant("reduce")
def reduce_kernel(request: Request) -> Kernel:
    attributes, g, source = request.node.attributes, request.output.geometry, request.input(0).geometry
    assert isinstance(attributes, Reduce)
    rank = len(source.shape)
    channels = rank - 1 in attributes.axes
    loops = [(source.shape[a], source.axis_strides[a]) for a in attributes.axes if a < rank - 1]
    if channels:
        loops.append((source.slices, source.plane))
    count = prod(extent for extent, _ in loops)
    kept = access("src", request.input(0).type, source.shape, g.shape, fixed=attributes.axes)
    combination, source_type = COMBINATIONS[attributes.function], request.input(0).vector
    neutral = combination.neutral[source_type == "int"]
    unused = channels and neutral != "0" and source.channels % LANES
    sharers, tiles, per_tile = _share(request, g.quads, count)
    return Kernel(
        "reduce",
        {
            "kept": kept,
            "loops": loops,
            "count": count,
            "channels": channels,
            "combination": combination.expression,
            "neutral": neutral,
            "past_last": [-(lane >= source.channels % LANES) for lane in range(LANES)] if unused else [],
            "squares": attributes.function == "sum_of_squares",
            "divided_by": prod(source.shape[a] for a in attributes.axes) if attributes.function == "mean" else 1,
            "sharers": sharers,
            "per_tile": per_tile,
            "src": request.input(0),
        },
        (request.activation("src", 0),),
        tiles=tiles,
        local_size=request.target.local_size,
        scratch=scratch(request.target, sharers, 1),
        value_type=source_type,
    )


@variant("arg_extreme")
def arg_extreme_kernel(request: Request) -> Kernel:
    attributes, g, source = request.node.attributes, request.output.geometry, request.input(0).geometry
    assert isinstance(attributes, ArgExtreme)
    channels = attributes.axis == len(source.shape) - 1
    extent = source.shape[attributes.axis]
    per_tile = items_per_tile(g.quads, request.target, 4 * extent)
    return Kernel(
        "arg_extreme",
        {
            "kept": access("src", request.input(0).type, source.shape, g.shape, fixed=(attributes.axis,)),
            "channels": channels,
            "extent": extent,
            "stride": source.plane if channels else source.axis_strides[attributes.axis],
            "beats": ">" if attributes.greatest else "<",
            "per_tile": per_tile,
            "src": request.input(0),
        },
        (request.activation("src", 0),),
        tiles=tile_count(g.quads, per_tile),
        local_size=request.target.local_size,
        value_type="int",
    )


def _share(request: Request, items: int, length: int) -> tuple[int, int, int]:
    """How many work-items share one item of ``length`` elements, the number of tiles, and items of a tile.

    Long items are shared, and short ones where there are few: by as many as one tile for each compute unit allows.
    """
    target = request.target
    size = target.local_size
    idle = tile_count(items, size) < target.compute_units
    if target.family == "gpu" and (length >= size or (length >= WARP and idle)):
        counts = (size // n for n in SPLITS if size // n >= WARP)
        sharers = next((n for n in counts if tile_count(items, size // n) <= target.compute_units), WARP)
        return sharers, tile_count(items, size // sharers), size // sharers
    per_tile = items_per_tile(items, target, 4 * length)
    return 1, tile_count(items, per_tile), per_tile


@variant("softmax")
def softmax_kernel(request: Request) -> Kernel:
    attributes, g = request.node.attributes, request.output.geometry
    assert isinstance(attributes, Softmax)
    sharers, tiles, per_tile = _share(request, g.pixels, g.slices)
    return Kernel(
        "softmax",
        {
            "beta": attributes.beta,
            "log": attributes.log,
            "dirty": attributes.log,
            "sharers": sharers,
            "per_tile": per_tile,
            "src": request.input(0),
        },
        (request.activation("src", 0),),
        tiles=tiles,
        local_size=request.target.local_size,
        scratch=scratch(request.target, sharers, 1),
    )
