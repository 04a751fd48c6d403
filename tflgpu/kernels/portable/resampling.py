"""Kernels that sample an image between its pixels."""

from __future__ import annotations

from math import prod

import numpy as np

from tflgpu.graph.layout import pack
from tflgpu.kernels.architecture import PORTABLE
from tflgpu.kernels.items import item_kernel
from tflgpu.kernels.kernel import Argument, Kernel
from tflgpu.kernels.request import Request
from tflgpu.ops.image.resize import Resize


@PORTABLE.lowering("resampler")
def resampler_kernel(request: Request) -> Kernel:
    warp = request.value(1)
    # Half precision has too few digits for a fraction of a pixel in a large image.
    constant = None if warp is None else Argument("warp", "float", None, pack(warp.astype(np.float32)))
    arguments = request.activation("src", 0), constant or request.activation("warp", 1)
    parameters = {
        "src": request.input(0),
        "warp_type": arguments[1].type,
        "batches_per_image": prod(request.output.geometry.batch_axes[1:]),
    }
    return item_kernel(request, "portable/resampler", parameters, arguments, 60)


@PORTABLE.lowering("resize_bilinear")
def resize_kernel(request: Request) -> Kernel:
    attributes = request.node.attributes
    assert isinstance(attributes, Resize)
    parameters = {"scale": attributes.scale, "offset": attributes.offset, "src": request.input(0)}
    return item_kernel(request, "portable/resize_bilinear", parameters, [request.activation("src", 0)], 60)
