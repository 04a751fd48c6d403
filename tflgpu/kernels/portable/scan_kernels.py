"""Kernels of CUMSUM and TOPK_V2."""

from __future__ import annotations

from tflgpu.kernels.access import coordinates
from tflgpu.kernels.architecture import PORTABLE
from tflgpu.kernels.kernel import Kernel
from tflgpu.kernels.portable.reduction_kernels import share_results
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import items_per_tile, tile_count
from tflgpu.ops.arithmetic.scan import CumulativeSum, TopK

RUN = 8  # vec4s of a line that a work-item of a GPU loads at once, before it adds them up


@PORTABLE.lowering("cumulative_sum")
def cumulative_sum_kernel(request: Request) -> Kernel:
    """A line of vec4s along the axis, or of channels, is that of a work-item, or of some that share it."""
    attributes, g, source = request.node.attributes, request.output.geometry, request.input(0)
    assert isinstance(attributes, CumulativeSum)
    along = coordinates(g.shape)[attributes.axis]
    extent = g.slices if along.kind == "c" else g.shape[attributes.axis]
    lines, on_gpu = g.vec4s // extent, request.target.family == "gpu"
    run = min(RUN, max(1, extent // request.target.cost_model.lockstep)) if on_gpu else 1
    # In large groups a turn took 20 us on an H200, in usual ones 2.
    sharing = share_results(request, lines, tile_count(extent, run) if on_gpu else 2 * extent, large=False)
    return Kernel(
        "portable/cumulative_sum",
        {
            "along": along,
            "extent": extent,
            "lines": lines,
            "exclusive": attributes.exclusive,
            "reverse": attributes.reverse,
            "sharers": sharing.sharers,
            "run": run if sharing.sharers > 1 or not on_gpu else min(RUN, extent),
            "per_tile": sharing.per_tile,
            "src": source,
            "dirty": along.kind == "c",
        },
        (request.activation("src", 0),),
        tiles=sharing.tiles,
        local_size=sharing.local_size,
        workspace=sharing.workspace(1),
        value_type=source.vector,
    )


@PORTABLE.lowering("top_k")
def top_k_kernel(request: Request) -> Kernel:
    attributes, g, source = request.node.attributes, request.output.geometry, request.input(0)
    assert isinstance(attributes, TopK)
    per_tile = items_per_tile(g.pixels, request.target, 2 * g.channels * source.channels)
    return Kernel(
        "portable/top_k",
        {"indices": attributes.result == "indices", "per_tile": per_tile, "src": source},
        (request.activation("src", 0),),
        tiles=tile_count(g.pixels, per_tile),
        local_size=request.target.local_size,
        value_type="int" if attributes.result == "indices" else source.vector,
    )
