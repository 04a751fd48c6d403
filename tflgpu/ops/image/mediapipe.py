"""Custom operators of MediaPipe's models: transposed convolution with bias, pooling with the maxima's indices.

Their options are raw C structs of 32-bit integers (TfLiteTransposeConvParams and TfLitePoolParams).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from tflgpu.graph.ir import Tensor
from tflgpu.graph.layout import Shape
from tflgpu.ops.declaration import Emitter, Site, declare, judged
from tflgpu.ops.image.convolution import TransposeConvolution, bias_reasons, convolution_node
from tflgpu.ops.image.pooling import Pool
from tflgpu.ops.image.window import Padding, Window, reach_reasons, same_padding

SAME, VALID = 1, 2  # of TfLitePadding; 0 is "unknown"


@dataclass(frozen=True)
class PoolIndex:
    """The index of the greatest element of its window, row by row from the upper left corner, as a float."""

    window: Window


@dataclass(frozen=True)
class Unpool:
    """Inputs: values and the PoolIndex of each. The values at these places, zeros elsewhere. Windows do not overlap."""

    window: Window


def _integers(site: Site, count: int) -> tuple[int, ...] | None:
    """The first ``count`` integers of the options, None if there are fewer."""
    raw = site.options["custom_options"]
    return struct.unpack_from(f"<{count}i", raw) if len(raw) >= 4 * count else None


def _window(padding: int, stride: tuple[int, int], kernel: tuple[int, int], image: Shape) -> Window:
    """The window over an NHWC ``image``."""
    pads = Padding(0, 0, 0, 0)
    if padding == SAME:
        pads = Padding(*(p for i in (0, 1) for p in same_padding(image[1 + i], kernel[i], stride[i], 1)))
    return Window(kernel, stride, (1, 1), pads)


def _upsampled(padding: int, stride: tuple[int, int], kernel: tuple[int, int], image: Shape) -> tuple[int, int]:
    """The height and width from which the window leads back to ``image``."""
    height, width = (
        size * s if padding == SAME else (size - 1) * s + k
        for size, s, k in zip(image[1:3], stride, kernel, strict=True)
    )
    return height, width


def _transpose_reasons(site: Site) -> Iterator[str]:
    image, weights, options = site.input(0), site.input(1), _integers(site, 3)
    if options is None or options[0] not in (SAME, VALID) or min(options[1:]) < 1:
        yield "its options are not a padding and two positive strides"
    if len(image.shape) != 4 or len(weights.shape) != 4 or weights.shape[3] != image.shape[3]:
        yield f"its weights {list(weights.shape)} do not fit its input {list(image.shape)}"
    else:
        yield from bias_reasons(site, 2, weights.shape[0])


@declare("Convolution2DTransposeBias", versions=1, inputs=3, empty=False, reasons=_transpose_reasons)
def transpose_convolution_with_bias(site: Site, emit: Emitter) -> Tensor:
    """MediaPipe's transposed convolution."""
    image, weights, options = site.input(0), site.input(1), judged(_integers(site, 3))
    padding, stride = options[0], (options[2], options[1])
    out, kh, kw, _ = weights.shape
    height, width = _upsampled(padding, stride, (kh, kw), image.shape)
    shape = (image.shape[0], height, width, out)
    attributes = TransposeConvolution(_window(padding, stride, (kh, kw), shape))
    return convolution_node(site, emit, "transpose_convolution", (image, weights, site.input(2)), shape, attributes)


def _option_reasons(site: Site) -> Iterator[str]:
    options = _integers(site, 6)
    if options is None or options[0] not in (SAME, VALID) or min(options[1:5]) < 1 or options[5] != 0:
        yield "its options are not a padding, positive strides and sizes, and no activation"
    if len(site.input(0).shape) != 4:
        yield f"its input has shape {list(site.input(0).shape)}; [batch, height, width, channels] was expected"


def _pool_reasons(site: Site) -> Iterator[str]:
    obstacles = list(_option_reasons(site))
    yield from obstacles
    options, shape = _integers(site, 6), site.input(0).shape
    if obstacles or options is None:
        return
    yield from reach_reasons(_window(options[0], _stride(options), _kernel(options), shape), shape)
    if options[0] == VALID and any(k > d for k, d in zip(_kernel(options), shape[1:3], strict=True)):
        yield f"its window {_kernel(options)} is larger than the input {list(shape[1:3])}"


def _kernel(options: tuple[int, ...]) -> tuple[int, int]:
    return options[4], options[3]


def _stride(options: tuple[int, ...]) -> tuple[int, int]:
    return options[2], options[1]


@declare("MaxPoolingWithArgmax2D", versions=1, inputs=1, empty=False, reasons=_pool_reasons)
def max_pooling_with_argmax(site: Site, emit: Emitter) -> tuple[Tensor, Tensor]:
    """MediaPipe's maxima of windows, and their places."""
    image, options = site.input(0), judged(_integers(site, 6))
    window = _window(options[0], _stride(options), _kernel(options), image.shape)
    shape = (image.shape[0], *window.output(*image.shape[1:3]), image.shape[3])
    values = emit.node("pool", [image], shape, Pool("maximum", window))
    return values, emit.node("pool_index", [image], shape, PoolIndex(window))


def _unpool_reasons(site: Site) -> Iterator[str]:
    yield from _option_reasons(site)
    options = _integers(site, 6)
    if options is not None and _kernel(options) != _stride(options):
        yield f"its windows {_kernel(options)} at strides {_stride(options)} overlap or leave gaps"
    if site.input(0).shape != site.input(1).shape:
        yield f"its values {list(site.input(0).shape)} and indices {list(site.input(1).shape)} differ in shape"


@declare("LiteRtMaxUnpooling2D", versions=1, inputs=2, empty=False, reasons=_unpool_reasons)
@declare("MaxUnpooling2D", versions=1, inputs=2, empty=False, reasons=_unpool_reasons)
def max_unpooling(site: Site, emit: Emitter) -> Tensor:
    """MediaPipe's inverse of max pooling."""
    values, indices, options = site.input(0), site.input(1), judged(_integers(site, 6))
    # Windows that do not overlap cover the output without padding; the padding option has no effect.
    window = _window(VALID, _stride(options), _kernel(options), values.shape)
    height, width = _upsampled(VALID, _stride(options), _kernel(options), values.shape)
    shape = (values.shape[0], height, width, values.shape[3])
    return emit.node("unpool", [values, indices], shape, Unpool(window))
