"""Kernels of CUMSUM, TOPK_V2 and WHERE."""

from __future__ import annotations

from dataclasses import dataclass

from tflgpu.kernels.access import Coordinate, coordinates
from tflgpu.kernels.architecture import PORTABLE
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

    extent: vec4s of a line. run: of them, those that a work-item takes at once.
    """

    along: Coordinate
    lines: int
    extent: int
    run: int
    sharing: Sharing


def _lines(request: Request) -> Lines:
    attributes, g, target = request.attributes(CumulativeSum), request.output.geometry, request.target
    along = coordinates(g.shape)[attributes.axis]
    extent, on_gpu = g.slices if along.kind == "c" else g.shape[attributes.axis], target.family == "gpu"
    lines = g.vec4s // extent
    run = min(RUN, max(1, extent // target.cost_model.lockstep)) if on_gpu else 1
    # The scan of a large work-group waits far longer at its barriers.
    sharing = share_results(request, lines, tile_count(extent, run) if on_gpu else 2 * extent, large=False)
    if sharing.sharers == 1 and on_gpu:
        run = min(RUN, extent)
    return Lines(along, lines, extent, run, sharing)


@dataclass(frozen=True, kw_only=True)
class CumulativeSumParameters(Parameters, template="portable/cumulative_sum"):
    """Parameters of ``templates/portable/cumulative_sum.cl.j2``."""

    along: Coordinate
    extent: int
    lines: int
    exclusive: bool
    reverse: bool
    sharers: int
    run: int
    per_tile: int
    src: Storage
    dirty: bool


@PORTABLE.lowering("cumulative_sum")
def cumulative_sum_kernel(request: Request) -> Kernel:
    """A line of vec4s along the axis, or of channels, is that of a work-item, or of some that share it."""
    attributes, source = request.attributes(CumulativeSum), request.input(0)
    lines = _lines(request)
    return Kernel(
        CumulativeSumParameters(
            along=lines.along,
            extent=lines.extent,
            lines=lines.lines,
            exclusive=attributes.exclusive,
            reverse=attributes.reverse,
            sharers=lines.sharing.sharers,
            run=lines.run,
            per_tile=lines.sharing.per_tile,
            src=source,
            dirty=lines.along.kind == "c",
        ),
        (request.activation("src", 0),),
        tiles=lines.sharing.tiles,
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
    attributes, g, source = request.attributes(TopK), request.output.geometry, request.input(0)
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


@dataclass(frozen=True, kw_only=True)
class FirstAboveParameters(ItemParameters, template="portable/first_above"):
    """Parameters of ``templates/portable/first_above.cl.j2``."""

    src: Storage
    dirty: bool = True  # past the last place the search ends there


@PORTABLE.lowering("first_above")
def first_above_kernel(request: Request) -> Kernel:
    """A binary search for each place of a row."""
    source = request.input(0)
    cost = 8 * source.channels.bit_length()
    return item_kernel(
        request, FirstAboveParameters(src=source), [request.activation("src", 0)], cost, value_type="int"
    )
