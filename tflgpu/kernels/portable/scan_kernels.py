"""Kernels of CUMSUM and TOPK_V2."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tflgpu.kernels.access import Coordinate, coordinates
from tflgpu.kernels.architecture import PORTABLE
from tflgpu.kernels.candidates import Candidate
from tflgpu.kernels.demand import Demand, Phase
from tflgpu.kernels.items import ItemParameters, item_kernel
from tflgpu.kernels.kernel import Kernel, Parameters, Storage
from tflgpu.kernels.portable.reduction_kernels import Sharing, share_results
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import tile_count
from tflgpu.ops.arithmetic.scan import CumulativeSum, TopK

RUN = 8  # vec4s of a line that a work-item of a GPU loads at once, before it adds them up


@dataclass(frozen=True)
class Lines:
    """The lines of vec4s along an axis, or of channels, and how work-items share them.

    extent: vec4s of a line. own: those of a share of it. run: of them, those that a work-item takes at once.
    """

    along: Coordinate
    lines: int
    extent: int
    own: int
    run: int
    sharing: Sharing


def _lines(request: Request, shares: int) -> Lines:
    attributes, g, target = request.node.attributes, request.output.geometry, request.target
    assert isinstance(attributes, CumulativeSum)
    along = coordinates(g.shape)[attributes.axis]
    extent = g.slices if along.kind == "c" else g.shape[attributes.axis]
    lines, own, on_gpu = g.vec4s // extent, tile_count(extent, shares), target.family == "gpu"
    run = min(RUN, max(1, own // target.cost_model.lockstep)) if on_gpu else 1
    # The scan of a large work-group waits far longer at its barriers.
    length = tile_count(own, run) if on_gpu else 2 * own
    sharing = share_results(replace(request, shares=shares), lines, length, large=False)
    if sharing.sharers == 1 and on_gpu:
        run = min(RUN, own)
    return Lines(along, lines, extent, own, run, sharing)


def _best_running_sum(request: Request) -> Candidate[Sharing, Sharing]:
    """The only candidate. Another kernel reads shares of it first."""
    lines, model = _lines(request, request.shares), request.target.cost_model
    turns = tile_count(lines.own, lines.run * lines.sharing.sharers)
    scan = model.tile_latency + lines.run * model.batch_latency
    phases, latency = [Phase(turns, (scan,))], 0.0
    if request.shares > 1:
        phases, latency = [*phases, Phase(turns, (model.batch_latency,))], model.tile_latency
    demand = Demand(request.shares * lines.sharing.tiles, tuple(phases), latency)
    return Candidate(lines.sharing, lines.sharing, demand.cycles(request.target))


@dataclass(frozen=True, kw_only=True)
class CumulativeSumParameters(Parameters, template="portable/cumulative_sum"):
    """Parameters of ``templates/portable/cumulative_sum.cl.j2``."""

    along: Coordinate
    extent: int
    lines: int
    exclusive: bool
    reverse: bool
    shares: int
    share_extent: int
    share_tiles: int
    sharers: int
    run: int
    per_tile: int
    src: Storage
    dirty: bool


@PORTABLE.lowering("cumulative_sum", best=_best_running_sum)
def cumulative_sum_kernel(request: Request) -> Kernel:
    """A line of vec4s along the axis, or of channels, is that of a work-item, or of some that share it."""
    attributes, source = request.node.attributes, request.input(0)
    assert isinstance(attributes, CumulativeSum)
    lines = _lines(request, attributes.shares)
    arguments = [request.activation("src", 0)]
    if attributes.shares > 1:
        arguments.append(request.activation("share_sums", 1))
    return Kernel(
        CumulativeSumParameters(
            along=lines.along,
            extent=lines.extent,
            lines=lines.lines,
            exclusive=attributes.exclusive,
            reverse=attributes.reverse,
            shares=attributes.shares,
            share_extent=lines.own,
            share_tiles=lines.sharing.tiles,
            sharers=lines.sharing.sharers,
            run=lines.run,
            per_tile=lines.sharing.per_tile,
            src=source,
            dirty=lines.along.kind == "c",
        ),
        tuple(arguments),
        tiles=attributes.shares * lines.sharing.tiles,
        local_size=lines.sharing.local_size,
        workspace=lines.sharing.workspace(1),
        value_type=source.vector,
    )


@dataclass(frozen=True, kw_only=True)
class TopKParameters(ItemParameters, template="portable/top_k"):
    """Parameters of ``templates/portable/top_k.cl.j2``."""

    indices: bool
    src: Storage


@PORTABLE.lowering("top_k")
def top_k_kernel(request: Request) -> Kernel:
    """The greatest elements of each pixel, or their places."""
    attributes, g, source = request.node.attributes, request.output.geometry, request.input(0)
    assert isinstance(attributes, TopK)
    return item_kernel(
        request,
        TopKParameters(
            indices=attributes.result == "indices",
            src=source,
        ),
        [request.activation("src", 0)],
        2 * g.channels * source.channels,
        items=g.pixels,
        value_type="int" if attributes.result == "indices" else source.vector,
    )
