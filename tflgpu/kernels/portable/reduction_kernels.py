"""Kernels of reductions, softmax and ARG_MAX."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tflgpu.graph.layout import LANES
from tflgpu.kernels.access import access
from tflgpu.kernels.architecture import PORTABLE
from tflgpu.kernels.kernel import Kernel
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import SPLIT_K, fits_local, items_per_tile, reduces_in_subgroups, split_workspace, tile_count
from tflgpu.ops.arithmetic.layer_norm import LayerNorm
from tflgpu.ops.arithmetic.reduction import ArgExtreme, Reduce, Softmax


@dataclass(frozen=True)
class Combination:
    """How a reduction joins two elements, by OpenCL expressions.

    neutral: the value that changes no result, for vectors of the types of ``_REDUCED``.
    """

    expression: str
    neutral: tuple[str, str, str] = ("0", "0", "0")


_REDUCED = ("float", "int", "long")


# sum_of_squares has no operator of its own: norms are made of it.
COMBINATIONS = {
    "mean": Combination("%s + %s"),
    "sum": Combination("%s + %s"),
    "sum_of_squares": Combination("%s + %s"),
    "max": Combination("max(%s, %s)", ("-INFINITY", "INT_MIN", "LONG_MIN")),
    "min": Combination("min(%s, %s)", ("INFINITY", "INT_MAX", "LONG_MAX")),
    "prod": Combination("%s * %s", ("1", "1", "1")),
    "any": Combination("%s | %s"),
    "all": Combination("%s & %s", ("1", "1", "1")),
}


@PORTABLE.lowering("reduce")
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
    neutral = combination.neutral[_REDUCED.index(source_type)]
    unused = channels and neutral != "0" and source.channels % LANES
    sharers, tiles, per_tile = _share(request, g.vec4s, count)
    return Kernel(
        "portable/reduce",
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
            "subgroups": reduces_in_subgroups(request.target, sharers),
            "per_tile": per_tile,
            "src": request.input(0),
        },
        (request.activation("src", 0),),
        tiles=tiles,
        local_size=request.target.local_size,
        workspace=split_workspace(request.target, sharers, 1),
        value_type=source_type,
    )


@PORTABLE.lowering("arg_extreme")
def arg_extreme_kernel(request: Request) -> Kernel:
    attributes, g, source = request.node.attributes, request.output.geometry, request.input(0).geometry
    assert isinstance(attributes, ArgExtreme)
    channels = attributes.axis == len(source.shape) - 1
    extent = source.shape[attributes.axis]
    per_tile = items_per_tile(g.vec4s, request.target, 4 * extent)
    return Kernel(
        "portable/arg_extreme",
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
        tiles=tile_count(g.vec4s, per_tile),
        local_size=request.target.local_size,
        value_type="int",
    )


def _share(request: Request, items: int, length: int) -> tuple[int, int, int]:
    """How many work-items share one result of ``length`` elements; the number of tiles; results of a tile.

    Work-items share a long reduction, and a short one where there are few results: as many as leave one tile for each
    compute unit. Those of 64 bits are not shared: local memory is laid out for vec4s of 32 bits.
    items: the number of results.
    """
    target = request.target
    size, least = target.local_size, target.cost_model.lockstep
    idle = tile_count(items, size) < target.compute_units
    able = target.family == "gpu" and request.input(0).vector != "long" and size >= least and fits_local(target, size)
    if able and (length >= size or (length >= least and idle)):
        counts = (size // n for n in SPLIT_K if size // n >= least)
        sharers = next((n for n in counts if tile_count(items, size // n) <= target.compute_units), least)
        return sharers, tile_count(items, size // sharers), size // sharers
    per_tile = items_per_tile(items, target, 4 * length)
    return 1, tile_count(items, per_tile), per_tile


@PORTABLE.lowering("softmax")
def softmax_kernel(request: Request) -> Kernel:
    attributes = request.node.attributes
    assert isinstance(attributes, Softmax)
    return _row_kernel(request, "portable/softmax", {"beta": attributes.beta, "log": attributes.log})


@PORTABLE.lowering("layer_norm")
def layer_norm_kernel(request: Request) -> Kernel:
    attributes = request.node.attributes
    assert isinstance(attributes, LayerNorm)
    return _row_kernel(request, "rows/layer_norm", {"epsilon": attributes.epsilon})


def _row_kernel(request: Request, template: str, parameters: dict[str, object]) -> Kernel:
    """A kernel whose work-items share the channels of a pixel."""
    g = request.output.geometry
    sharers, tiles, per_tile = _share(request, g.pixels, g.slices)
    return Kernel(
        template,
        {
            **parameters,
            "dirty": True,
            "sharers": sharers,
            "subgroups": reduces_in_subgroups(request.target, sharers),
            "per_tile": per_tile,
            "src": request.input(0),
        },
        (request.activation("src", 0),),
        tiles=tiles,
        local_size=request.target.local_size,
        workspace=split_workspace(request.target, sharers, 1),
    )
