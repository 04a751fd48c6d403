"""Kernels of CUMSUM, TOPK_V2, BUCKETIZE and WHERE."""

from __future__ import annotations

from dataclasses import dataclass

from tflgpu.kernels.access import Coordinate, coordinates
from tflgpu.kernels.architecture import PORTABLE
from tflgpu.kernels.items import ItemParameters, item_kernel
from tflgpu.kernels.kernel import Kernel, Storage
from tflgpu.kernels.portable.reduction_kernels import SharedParameters, share_results, shared_kernel
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import LOADS_AT_ONCE, tile_count
from tflgpu.ops.arithmetic.scan import CumulativeSum, TopK


@dataclass(frozen=True, kw_only=True)
class CumulativeSumParameters(SharedParameters, template="portable/cumulative_sum", stores_once=True):
    """Parameters of ``templates/portable/cumulative_sum.cl.j2``."""

    along: Coordinate
    extent: int
    lines: int
    exclusive: bool
    reverse: bool
    run: int
    dirty: bool


@PORTABLE.lowering("cumulative_sum")
def cumulative_sum_kernel(request: Request) -> Kernel:
    """Return a line of vec4s along the axis, or of channels, is that of a work-item, or of some that share it."""
    attributes, g = request.attributes(CumulativeSum), request.output.geometry
    source, target = request.input(0), request.target
    along = coordinates(g.shape)[attributes.axis]
    extent, on_gpu = g.slices if along.kind == "c" else g.shape[attributes.axis], target.family == "gpu"
    lines = g.vec4s // extent
    run = min(LOADS_AT_ONCE, max(1, extent // target.cost_model.lockstep)) if on_gpu else 1
    # The scan of a large work-group waits far longer at its barriers.
    sharing = share_results(request, lines, tile_count(extent, run) if on_gpu else 2 * extent, large=False)
    if sharing.sharers == 1 and on_gpu:
        run = min(LOADS_AT_ONCE, extent)
    parameters = CumulativeSumParameters(
        along=along,
        extent=extent,
        lines=lines,
        exclusive=attributes.exclusive,
        reverse=attributes.reverse,
        run=run,
        src=source,
        dirty=along.kind == "c",
    )
    return shared_kernel(request, parameters, sharing, value_type=source.vector)


@dataclass(frozen=True, kw_only=True)
class TopKParameters(ItemParameters, template="portable/top_k", stores_once=True):
    """Parameters of ``templates/portable/top_k.cl.j2``."""

    indices: bool
    src: Storage


@PORTABLE.lowering("top_k")
def top_k_kernel(request: Request) -> Kernel:
    """Return the greatest elements of each pixel, or their places."""
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
class FirstAboveParameters(ItemParameters, template="portable/first_above", stores_once=True):
    """Parameters of ``templates/portable/first_above.cl.j2``."""

    src: Storage
    dirty: bool = True  # past the last place the search ends there


@PORTABLE.lowering("first_above")
def first_above_kernel(request: Request) -> Kernel:
    """Return a binary search for each place of a row."""
    source = request.input(0)
    cost = 8 * source.channels.bit_length()
    return item_kernel(
        request, FirstAboveParameters(src=source), [request.activation("src", 0)], cost, value_type="int"
    )


@dataclass(frozen=True, kw_only=True)
class BucketsParameters(ItemParameters, template="portable/buckets", stores_once=True):
    """Parameters of ``templates/portable/buckets.cl.j2``."""

    src: Storage
    count: int
    dirty: bool = True


@PORTABLE.lowering("buckets")
def buckets_kernel(request: Request) -> Kernel:
    """Return a binary search for each element."""
    count = request.shape(1).channels
    parameters = BucketsParameters(src=request.input(0), count=count)
    arguments = [request.activation("src", 0), request.operand("boundaries", 1)]
    return item_kernel(request, parameters, arguments, 16 * count.bit_length(), value_type="int")
