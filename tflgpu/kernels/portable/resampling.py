"""Kernels that sample an image between its pixels."""

from __future__ import annotations

from math import prod

import numpy as np

from tflgpu.graph.layout import pack
from tflgpu.kernels.architecture import PORTABLE
from tflgpu.kernels.kernel import Argument, Kernel
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import items_per_tile, tile_count
from tflgpu.ops.image.resize import Resize


@PORTABLE.lowering("resampler")
def resampler_kernel(request: Request) -> Kernel:
    g, target, warp = request.output.geometry, request.target, request.value(1)
    per_tile = items_per_tile(g.vec4s, target, 60)
    # Half precision has too few digits for a fraction of a pixel in a large image.
    constant = None if warp is None else Argument("warp", "float", None, pack(warp.astype(np.float32)))
    arguments = request.activation("src", 0), constant or request.activation("warp", 1)
    return Kernel(
        "portable/resampler",
        {
            "src": request.input(0),
            "warp_type": arguments[1].type,
            "batches_per_image": prod(g.batch_axes[1:]),
            "per_tile": per_tile,
        },
        arguments,
        tiles=tile_count(g.vec4s, per_tile),
        local_size=target.local_size,
    )


@PORTABLE.lowering("resize_bilinear")
def resize_kernel(request: Request) -> Kernel:
    attributes, g, target = request.node.attributes, request.output.geometry, request.target
    assert isinstance(attributes, Resize)
    per_tile = items_per_tile(g.vec4s, target, 60)
    return Kernel(
        "portable/resize_bilinear",
        {"scale": attributes.scale, "offset": attributes.offset, "per_tile": per_tile, "src": request.input(0)},
        (request.activation("src", 0),),
        tiles=tile_count(g.vec4s, per_tile),
        local_size=target.local_size,
    )
