"""Kernels of images: depthwise convolutions of any window, pooling, normalization, resampling, and crops."""

from __future__ import annotations

from dataclasses import dataclass
from math import cos, prod, sin

import numpy as np

from tflgpu.graph.layout import LANES, pack
from tflgpu.kernels.architecture import PORTABLE
from tflgpu.kernels.convolutions import depthwise_arguments
from tflgpu.kernels.items import ItemParameters, item_kernel
from tflgpu.kernels.kernel import Argument, Kernel, Storage
from tflgpu.kernels.request import Request
from tflgpu.ops.arithmetic.reduction import LocalResponse
from tflgpu.ops.image.convolution import Depthwise
from tflgpu.ops.image.mediapipe import Crop, PoolIndex, Unpool
from tflgpu.ops.image.resize import Resize
from tflgpu.ops.image.window import Pool, Window
from tflgpu.target import ElementType


@dataclass(frozen=True, kw_only=True)
class DepthwiseParameters(ItemParameters, template="portable/depthwise", stores_once=True):
    """Parameters of ``templates/portable/depthwise.cl.j2``."""

    window: Window
    multiplier: int
    src: Storage
    weights_type: ElementType
    factor_type: ElementType


@PORTABLE.lowering("depthwise", reads_grids=True)
def depthwise(request: Request) -> Kernel:
    """For every window and channel multiplier."""
    attributes, g = request.attributes(Depthwise), request.output.geometry
    taps = prod(attributes.window.kernel)
    arguments = depthwise_arguments(request)
    parameters = DepthwiseParameters(
        window=attributes.window,
        multiplier=attributes.multiplier,
        src=request.input(0),
        weights_type=arguments[1].type,
        factor_type=request.factor_type(arguments[0].type, arguments[1].type),
    )
    cost, macs = 2 * taps * LANES, taps * g.pixels * g.channels
    return item_kernel(request, parameters, arguments, cost, macs=macs)


@dataclass(frozen=True, kw_only=True)
class PoolIndexParameters(ItemParameters, template="portable/pool_index", stores_once=True):
    """Parameters of ``templates/portable/pool_index.cl.j2``."""

    window: Window
    src: Storage


@dataclass(frozen=True, kw_only=True)
class UnpoolParameters(ItemParameters, template="portable/unpool", stores_once=True):
    """Parameters of ``templates/portable/unpool.cl.j2``."""

    window: Window
    src: Storage
    indices: Storage


@dataclass(frozen=True, kw_only=True)
class PoolParameters(ItemParameters, template="portable/pool", stores_once=True):
    """Parameters of ``templates/portable/pool.cl.j2``."""

    function: str
    window: Window
    src: Storage


@PORTABLE.lowering("pool_index")
def pool_index_kernel(request: Request) -> Kernel:
    """Return the places of the maxima of windows."""
    attributes = request.attributes(PoolIndex)
    parameters = PoolIndexParameters(window=attributes.window, src=request.input(0))
    return item_kernel(request, parameters, [request.activation("src", 0)], 8 * prod(attributes.window.kernel))


@PORTABLE.lowering("unpool")
def unpool_kernel(request: Request) -> Kernel:
    """Elements put back to the places that their indices name."""
    attributes = request.attributes(Unpool)
    parameters = UnpoolParameters(window=attributes.window, src=request.input(0), indices=request.input(1))
    arguments = request.activation("src", 0), request.activation("indices", 1)
    return item_kernel(request, parameters, arguments, 8 * prod(attributes.window.kernel))


@PORTABLE.lowering("pool", reads_grids=True)
def pool_kernel(request: Request) -> Kernel:
    """Return the maximum or the mean of windows."""
    attributes = request.attributes(Pool)
    parameters = PoolParameters(function=attributes.function, window=attributes.window, src=request.input(0))
    cost = 4 * prod(attributes.window.kernel)
    return item_kernel(request, parameters, [request.activation("src", 0)], cost)


@dataclass(frozen=True, kw_only=True)
class LocalResponseParameters(ItemParameters, template="portable/local_response", stores_once=True):
    """Parameters of ``templates/portable/local_response.cl.j2``."""

    radius: int
    bias: float
    alpha: float
    power: float
    src: Storage
    dirty: bool = True  # a power of no bias at all is infinite


@PORTABLE.lowering("local_response")
def local_response_kernel(request: Request) -> Kernel:
    """Local response normalization of a vec4 of the output."""
    attributes = request.attributes(LocalResponse)
    parameters = LocalResponseParameters(
        radius=attributes.radius,
        bias=attributes.bias,
        alpha=attributes.alpha,
        power=-attributes.beta,
        src=request.input(0),
    )
    cost = 4 * (2 * attributes.radius + 40)
    return item_kernel(request, parameters, [request.activation("src", 0)], cost)


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


@dataclass(frozen=True, kw_only=True)
class CropMatrixParameters(ItemParameters, template="portable/landmarks/crop_matrix", stores_once=True):
    """Parameters of ``templates/portable/landmarks/crop_matrix.cl.j2``."""

    ends: tuple[int, int]
    direction: tuple[float, float]
    scale: tuple[float, float]
    centre: tuple[float, float]
    count: int
    src: Storage


@dataclass(frozen=True, kw_only=True)
class CropParameters(ItemParameters, template="portable/landmarks/crop", stores_once=True):
    """Parameters of ``templates/portable/landmarks/crop.cl.j2``."""

    matrix_type: ElementType
    src: Storage


@dataclass(frozen=True, kw_only=True)
class TransformedLandmarksParameters(
    ItemParameters, template="portable/landmarks/transformed_landmarks", stores_once=True
):
    """Parameters of ``templates/portable/landmarks/transformed_landmarks.cl.j2``."""

    matrix_type: ElementType
    src: Storage


@PORTABLE.lowering("crop_matrix")
def crop_matrix(request: Request) -> Kernel:
    """Each work-item computes a row, from all landmarks that the crop surrounds: there are some hundred."""
    crop = request.attributes(Crop)
    parameters = CropMatrixParameters(
        ends=crop.ends,
        direction=(cos(crop.radians), sin(crop.radians)),
        scale=(crop.scale[0] / crop.size[0], crop.scale[1] / crop.size[1]),
        centre=(crop.size[0] / 2, crop.size[1] / 2),
        count=request.constant(1).size,
        src=request.input(0),
    )
    return _kernel(request, parameters, request.operand("around", 1))


@PORTABLE.lowering("crop")
def crop(request: Request) -> Kernel:
    """Return the pixels of an image that a transformation matrix leads to."""
    matrix = request.activation("matrix", 1)
    return _kernel(request, CropParameters(matrix_type=matrix.type, src=request.input(0)), matrix)


@PORTABLE.lowering("transformed_landmarks")
def transformed_landmarks(request: Request) -> Kernel:
    """Landmarks times a transformation matrix."""
    matrix = request.activation("matrix", 1)
    return _kernel(request, TransformedLandmarksParameters(matrix_type=matrix.type, src=request.input(0)), matrix)


def _kernel(request: Request, parameters: ItemParameters, second: Argument) -> Kernel:
    """second: input 1."""
    return item_kernel(request, parameters, (request.activation("src", 0), second), 60)
