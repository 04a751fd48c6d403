"""Kernels of reductions, softmax and ARG_MAX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from tflgpu.graph.layout import LANES, Size
from tflgpu.kernels.access import Access, access
from tflgpu.kernels.architecture import PORTABLE
from tflgpu.kernels.candidates import Candidate, Tile, TileConfig
from tflgpu.kernels.demand import Demand, Phase
from tflgpu.kernels.fusing import inner_epilogue
from tflgpu.kernels.kernel import Join, Kernel, Parameters, Storage
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import (
    LOADS_AT_ONCE,
    SPLIT_K,
    even_part,
    fits_local,
    items_per_tile,
    reduces_in_subgroups,
    tile_count,
    waves,
)
from tflgpu.ops.arithmetic.reduction import ArgExtreme, LayerNorm, Reduce, Softmax
from tflgpu.target import VectorType
from tflgpu.target.kernel_numbers import kernel_numbers


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


@dataclass(frozen=True, kw_only=True)
class ReductionNumbers:
    """Numbers of reductions on GPUs.

    Attributes:
        large_group: Work-items of a large group.
        held_vec4s: Vec4s of a row that a work-item has in registers.
        long: Elements of a result for each work-item of a usual group, from which on a large one is worth it.
    """

    large_group: int
    held_vec4s: int
    long: int


REDUCTION = kernel_numbers("portable/reduction", ReductionNumbers)


@dataclass(frozen=True)
class Sharing(Tile):
    """How many work-items share one result; tiles of all results, results of a tile, and work-items of its group."""

    sharers: int
    tiles: int
    per_tile: int
    local_size: int

    def workspace(self, vec4s: int) -> int:
        """float4 elements of local memory for ``vec4s`` of each work-item; none where they share nothing."""
        return self.local_size * vec4s if self.sharers > 1 else 0

    @property
    def config(self) -> TileConfig:
        """The parameters by which a tuner names the division."""
        return self.sharers, self.per_tile


def _best_reduction(request: Request) -> Candidate[Sharing, Sharing]:
    """Return the only candidate."""
    results, count = request.output.geometry.vec4s, tile_count(_reduced_vec4s(request), request.shares)
    sharing, target = share_results(request, results, count), request.target
    model = target.cost_model
    loop = Phase(tile_count(count, sharing.sharers), wait=model.k_step_latency)
    sums = Phase(1, (model.reduction(sharing.workspace(1)),))
    demand = Demand(request.shares * sharing.tiles, (loop, sums), model.tile_latency)
    return Candidate(sharing, sharing, demand.cycles(target))


def _reduced_vec4s(request: Request) -> int:
    """Return the vec4s that one result is reduced from."""
    attributes, source = request.attributes(Reduce), request.input(0).geometry
    return prod(source.slices if axis == len(source.shape) - 1 else source.shape[axis] for axis in attributes.axes)


@dataclass(frozen=True, kw_only=True)
class SharedParameters(Parameters):
    """Parameters of templates whose work-items share results, of which :func:`shared_kernel` fills in the numbers."""

    src: Storage
    sharers: int = 1
    per_tile: Size = 0


def shared_kernel(
    request: Request,
    parameters: SharedParameters,
    sharing: Sharing,
    *,
    vec4s: int = 1,
    value_type: VectorType = "float",
) -> Kernel:
    """Return a kernel whose work-items share what they make of ``src``. vec4s: of local memory, for each of them."""
    return Kernel(
        replace(parameters, sharers=sharing.sharers, per_tile=sharing.per_tile),
        (request.activation("src", 0),),
        tiles=sharing.tiles,
        local_size=sharing.local_size,
        workspace=sharing.workspace(vec4s),
        value_type=value_type,
    )


@PORTABLE.lowering("reduce", best=_best_reduction, reads_grids=True)
def reduce_kernel(request: Request) -> Kernel:
    """Return a reduction along some axes."""
    attributes, g, source = request.attributes(Reduce), request.output.geometry, request.input(0).geometry
    rank = len(source.shape)
    channels = rank - 1 in attributes.axes
    loops = _loops([(source.shape[a], source.axis_strides[a]) for a in attributes.axes if a < rank - 1])
    if channels:
        loops.append((source.slices, source.plane))
    kept = access("src", request.input(0), source.shape, g.shape, fixed=attributes.axes)
    neutral = COMBINATIONS[attributes.function].neutral[_REDUCED.index(request.input(0).vector)]
    unused = channels and neutral != "0" and source.channels % LANES
    return _reduction(
        request,
        _best_reduction(request).tile,
        attributes.function,
        kept=kept,
        loops=loops,
        count=_reduced_vec4s(request),
        channels=channels,
        past_last=[-(lane >= source.channels % LANES) for lane in range(LANES)] if unused else [],
        divided_by=prod(source.shape[a] for a in attributes.axes) if attributes.function == "mean" else 1,
    )


def _loops(axes: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Extents and strides of loops over ``axes``, the innermost first: one for axes that lie within each other."""
    loops: list[tuple[int, int]] = []
    for extent, stride in reversed(axes):
        if loops and stride == loops[-1][0] * loops[-1][1]:
            inner, step = loops.pop()
            extent, stride = extent * inner, step
        loops.append((extent, stride))
    return loops


@PORTABLE.lowering("join")
def join_kernel(request: Request) -> Kernel:
    """Return the reduction of shares of sums along the axis on which they lie one after the other."""
    join, g = request.attributes(Join), request.output.geometry
    return _reduction(
        request,
        share_results(request, g.vec4s, join.count),
        join.function,
        kept=access("src", request.input(0), g.shape, g.shape),
        loops=[(join.count, g.vec4s)],
        count=join.count,
        divided_by=join.divided_by,
    )


@dataclass(frozen=True, kw_only=True)
class ReduceParameters(SharedParameters, template="portable/reduce", stores_once=True):
    """Parameters of ``templates/portable/reduce.cl.j2``."""

    kept: Access
    loops: Sequence[tuple[int, int]]
    channels: bool
    past_last: Sequence[int]
    divided_by: int
    count: int
    shares: int
    count_of_share: int
    combination: str
    neutral: str
    squares: bool
    subgroups: bool
    at_once: int


def _reduction(
    request: Request,
    sharing: Sharing,
    function: str,
    *,
    kept: Access,
    loops: Sequence[tuple[int, int]],
    count: int,
    channels: bool = False,
    past_last: Sequence[int] = (),
    divided_by: int,
) -> Kernel:
    """Return the kernel of results of ``count`` vec4s each. The other parameters are the template's."""
    combination, source_type = COMBINATIONS[function], request.input(0).vector
    count_of_share = tile_count(count, request.shares)
    turns = tile_count(count_of_share, sharing.sharers)
    parameters = ReduceParameters(
        kept=kept,
        loops=loops,
        channels=channels,
        past_last=past_last,
        divided_by=divided_by,
        count=count,
        shares=request.shares,
        count_of_share=count_of_share,
        combination=combination.expression,
        neutral=combination.neutral[_REDUCED.index(source_type)],
        squares=function == "sum_of_squares",
        subgroups=reduces_in_subgroups(request.target, sharing.sharers),
        at_once=even_part(turns, LOADS_AT_ONCE) if request.target.family == "gpu" else 1,
        src=request.input(0),
    )
    return shared_kernel(request, parameters, sharing, value_type=source_type)


@dataclass(frozen=True, kw_only=True)
class ArgExtremeParameters(SharedParameters, template="portable/arg_extreme", stores_once=True):
    """Parameters of ``templates/portable/arg_extreme.cl.j2``."""

    kept: Access
    channels: bool
    extent: int
    count: int
    stride: int
    beats: str


@PORTABLE.lowering("arg_extreme", reads_grids=True)
def arg_extreme_kernel(request: Request) -> Kernel:
    """Return the places of the greatest or the least elements along an axis."""
    attributes, g, source = request.attributes(ArgExtreme), request.output.geometry, request.input(0).geometry
    channels = attributes.axis == len(source.shape) - 1
    extent = source.shape[attributes.axis]
    count = source.slices if channels else extent
    parameters = ArgExtremeParameters(
        kept=access("src", request.input(0), source.shape, g.shape, fixed=(attributes.axis,)),
        channels=channels,
        extent=extent,
        count=count,
        stride=source.plane if channels else source.axis_strides[attributes.axis],
        beats=">" if attributes.greatest else "<",
        src=request.input(0),
    )
    return shared_kernel(request, parameters, share_results(request, g.vec4s, count), vec4s=2, value_type="int")


def share_results(request: Request, items: int, length: int, *, large: bool = True) -> Sharing:
    """How work-items share results of ``length`` elements each.

    Work-items share a long reduction, and a short one where there are few results: as many as leave one tile for each
    compute unit. For very long ones of few results, launches take large groups. Those of 64 bits are not shared: local
    memory is laid out for vec4s of 32 bits.
    items: the number of results, in each share of sums. large: whether large groups are worth it.
    """
    target = request.target
    size, least, units = target.local_size, target.cost_model.lockstep, target.compute_units
    if large and target.executor == "launch" and request.shares * items <= units and length >= REDUCTION.long * size:
        size = replace(target, group=REDUCTION.large_group).local_size
    idle = request.shares * tile_count(items, size) < units
    able = target.family == "gpu" and request.input(0).vector in ("float", "int") and size >= least
    able = able and fits_local(target, 2 * size)
    if able and (length >= size or (length >= least and idle)):
        counts = (size // n for n in SPLIT_K if size // n >= least)
        sharers = next((n for n in counts if request.shares * tile_count(items, size // n) <= units), least)
        return Sharing(sharers, tile_count(items, size // sharers), size // sharers, size)
    per_tile = items_per_tile(items, target, 4 * length)
    return Sharing(1, tile_count(items, per_tile), per_tile, target.local_size)


@dataclass(frozen=True, kw_only=True)
class SoftmaxParameters(SharedParameters, template="portable/softmax", stores_once=True):
    """Parameters of ``templates/portable/softmax.cl.j2``."""

    beta: float
    log: bool
    shares: int
    sum_epilogue: Sequence[Mapping[str, object]]
    subgroups: bool
    dirty: bool = True


@dataclass(frozen=True, kw_only=True)
class LayerNormParameters(SharedParameters, template="rows/layer_norm", stores_once=True):
    """Parameters of ``templates/rows/layer_norm.cl.j2``."""

    epsilon: float
    centered: bool
    held: int
    at_once: int
    subgroups: bool
    dirty: bool = True


@PORTABLE.lowering("softmax", reads_grids=True)
def softmax_kernel(request: Request) -> Kernel:
    """Softmax whose work-items share the channels of a pixel."""
    attributes = request.attributes(Softmax)
    sharing = _share_row(request)
    parameters = SoftmaxParameters(
        beta=attributes.beta,
        log=attributes.log,
        shares=attributes.shares,
        sum_epilogue=inner_epilogue(attributes.sum_epilogue),
        subgroups=reduces_in_subgroups(request.target, sharing.sharers),
        src=request.input(0),
    )
    return shared_kernel(request, parameters, sharing)


@PORTABLE.lowering("layer_norm", reads_grids=True)
def layer_norm_kernel(request: Request) -> Kernel:
    """Layer normalization whose work-items share the channels of a pixel."""
    attributes = request.attributes(LayerNorm)
    target, pixels, sharing = request.target, request.output.geometry.pixels, _share_row(request)
    held = tile_count(request.output.slices, sharing.sharers)
    if sharing.sharers == 1 or held > REDUCTION.held_vec4s:
        held = 0
    # Waves of a persistent kernel would wait for memory one after another.
    at_once = (
        min(REDUCTION.held_vec4s // held, waves(sharing.tiles, target)) if held and target.executor != "launch" else 1
    )
    per_tile = sharing.per_tile * at_once
    sharing = replace(sharing, per_tile=per_tile, tiles=tile_count(pixels, per_tile))
    parameters = LayerNormParameters(
        epsilon=attributes.epsilon,
        centered=attributes.centered,
        held=held,
        at_once=at_once,
        subgroups=reduces_in_subgroups(target, sharing.sharers),
        src=request.input(0),
    )
    return shared_kernel(request, parameters, sharing)


def _share_row(request: Request) -> Sharing:
    """How work-items share the channels of a pixel: also if these are few, where compute units would be idle."""
    g, target = request.output.geometry, request.target
    sharing, size = share_results(request, g.pixels, g.slices), target.local_size
    if sharing.sharers > 1 or target.family != "gpu" or not fits_local(target, size):
        return sharing
    able = [n for n in (1, 2, 4, 8, 16) if n <= min(g.slices, size)]
    sharers = next((n for n in able if tile_count(g.pixels, size // n) >= target.compute_units), able[-1])
    return Sharing(sharers, tile_count(g.pixels, size // sharers), size // sharers, size)
