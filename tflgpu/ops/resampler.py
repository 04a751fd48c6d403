"""Resampler: an image at places that another tensor gives (tfa.image.resampler in TensorFlow Addons)."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np

from tflgpu.ir import Tensor
from tflgpu.layout import pack
from tflgpu.ops.base import Emitter, Site, declare
from tflgpu.ops.kernel import Argument, Kernel, Request, items_per_tile, tile_count, variant


def _reasons(site: Site) -> Iterator[str]:
    image, warp = site.input(0).shape, site.input(1).shape
    if len(image) != 4:
        yield f"its image has shape {list(image)}; [batch, height, width, channels] was expected"
    elif len(warp) < 2 or warp[0] != image[0] or warp[-1] != 2:
        yield f"its places have shape {list(warp)}; [{image[0]}, ..., 2] was expected"


@declare("Resampler", versions=1, inputs=2, reasons=_reasons)
def resampler(site: Site, emit: Emitter) -> Tensor:
    image, warp = site.input(0), site.input(1)
    return emit.node("resampler", [image, warp], (*warp.shape[:-1], image.shape[3]))


@variant("resampler")
def resampler_kernel(request: Request) -> Kernel:
    g, target, warp = request.output.geometry, request.target, request.value(1)
    per_tile = items_per_tile(g.quads, target, 60)
    # Half precision has too few digits for a fraction of a pixel in a large image.
    constant = None if warp is None else Argument("warp", "float", None, pack(warp.astype(np.float32)))
    arguments = request.activation("src", 0), constant or request.activation("warp", 1)
    return Kernel(
        "resampler",
        {
            "src": request.input(0),
            "warp_type": arguments[1].type,
            "batches_per_image": prod(g.batch_axes[1:]),
            "per_tile": per_tile,
        },
        arguments,
        tiles=tile_count(g.quads, per_tile),
        local_size=target.local_size,
    )
