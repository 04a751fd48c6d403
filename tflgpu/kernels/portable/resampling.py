"""Kernels that sample an image between its pixels."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from tflgpu.graph.layout import pack
from tflgpu.kernels.architecture import PORTABLE
from tflgpu.kernels.items import ItemParameters, item_kernel
from tflgpu.kernels.kernel import Argument, Kernel, Storage
from tflgpu.kernels.request import Request
from tflgpu.ops.image.resize import Resize
from tflgpu.target import ElementType


@dataclass(frozen=True, kw_only=True)
class ResamplerParameters(ItemParameters, template="portable/resampler", stores_once=True):
    """Parameters of ``templates/portable/resampler.cl.j2``."""

    src: Storage
    warp_type: ElementType
    batches_per_image: int


@PORTABLE.lowering("resampler")
def resampler_kernel(request: Request) -> Kernel:
    """Bilinear samples at computed places."""
    warp = request.value(1)
    # Half precision has too few digits for a fraction of a pixel in a large image.
    constant = None if warp is None else Argument("warp", "float", None, pack(warp.astype(np.float32)))
    arguments = request.activation("src", 0), constant or request.activation("warp", 1)
    parameters = ResamplerParameters(
        src=request.input(0),
        warp_type=arguments[1].type,
        batches_per_image=prod(request.output.geometry.batch_axes[1:]),
    )
    return item_kernel(request, parameters, arguments, 60)


@dataclass(frozen=True, kw_only=True)
class ResizeBilinearParameters(ItemParameters, template="portable/resize_bilinear", stores_once=True):
    """Parameters of ``templates/portable/resize_bilinear.cl.j2``."""

    scale: tuple[float, float]
    offset: tuple[float, float]
    src: Storage


@PORTABLE.lowering("resize_bilinear", reads_grids=True)
def resize_kernel(request: Request) -> Kernel:
    """Bilinear resizing of a vec4 of the output."""
    attributes = request.attributes(Resize)
    parameters = ResizeBilinearParameters(scale=attributes.scale, offset=attributes.offset, src=request.input(0))
    return item_kernel(request, parameters, [request.activation("src", 0)], 60)
