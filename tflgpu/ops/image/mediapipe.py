"""Custom operators of MediaPipe's models: transposed convolution with bias, pooling with the maxima's indices.

Their options are raw C structs of 32-bit integers (TfLiteTransposeConvParams and TfLitePoolParams).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tflgpu.graph.ir import Tensor
from tflgpu.ops.declaration import Emitter, Site, declare, judged
from tflgpu.ops.image.convolution import TransposeConvolution, bias_reasons, convolution_node
from tflgpu.ops.image.pooling import Pool
from tflgpu.ops.image.window import Window, fit_reasons, window_over

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
    """Return the first ``count`` integers of the options, None if there are fewer."""
    raw = site.options["custom_options"]
    return struct.unpack_from(f"<{count}i", raw) if len(raw) >= 4 * count else None


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
    same, stride = options[0] == SAME, (options[2], options[1])
    out, kh, kw, _ = weights.shape
    height, width = (  # from which the window leads back to the image
        size * s if same else (size - 1) * s + k for size, s, k in zip(image.shape[1:3], stride, (kh, kw), strict=True)
    )
    shape = (image.shape[0], height, width, out)
    attributes = TransposeConvolution(window_over(shape, (kh, kw), stride, same=same))
    return convolution_node(site, emit, "transpose_convolution", (image, weights, site.input(2)), shape, attributes)


class _Pooling(NamedTuple):
    """The options of pooling. kernel, stride: as (height, width)."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    same: bool


def _pooling(site: Site) -> _Pooling | None:
    """None for other options than the device takes."""
    options = _integers(site, 6)
    if options is None or options[0] not in (SAME, VALID) or min(options[1:5]) < 1 or options[5] != 0:
        return None
    padding, stride_width, stride_height, width, height, _ = options
    return _Pooling((height, width), (stride_height, stride_width), padding == SAME)


def _option_reasons(site: Site) -> Iterator[str]:
    if _pooling(site) is None:
        yield "its options are not a padding, positive strides and sizes, and no activation"
    if len(site.input(0).shape) != 4:
        yield f"its input has shape {list(site.input(0).shape)}; [batch, height, width, channels] was expected"


def _pool_reasons(site: Site) -> Iterator[str]:
    yield from _option_reasons(site)
    options, shape = _pooling(site), site.input(0).shape
    if options is not None and len(shape) == 4:
        yield from fit_reasons(window_over(shape, options.kernel, options.stride, same=options.same), shape)


@declare("MaxPoolingWithArgmax2D", versions=1, inputs=1, empty=False, reasons=_pool_reasons)
def max_pooling_with_argmax(site: Site, emit: Emitter) -> tuple[Tensor, Tensor]:
    """MediaPipe's maxima of windows, and their places."""
    image, options = site.input(0), judged(_pooling(site))
    window = window_over(image.shape, options.kernel, options.stride, same=options.same)
    shape = (image.shape[0], *window.output(*image.shape[1:3]), image.shape[3])
    values = emit.node("pool", [image], shape, Pool("maximum", window))
    return values, emit.node("pool_index", [image], shape, PoolIndex(window))


def _unpool_reasons(site: Site) -> Iterator[str]:
    yield from _option_reasons(site)
    options = _pooling(site)
    if options is not None and options.kernel != options.stride:
        yield f"its windows {options.kernel} at strides {options.stride} overlap or leave gaps"
    if site.input(0).shape != site.input(1).shape:
        yield f"its values {list(site.input(0).shape)} and indices {list(site.input(1).shape)} differ in shape"


@declare("LiteRtMaxUnpooling2D", versions=1, inputs=2, empty=False, reasons=_unpool_reasons)
@declare("MaxUnpooling2D", versions=1, inputs=2, empty=False, reasons=_unpool_reasons)
def max_unpooling(site: Site, emit: Emitter) -> Tensor:
    """MediaPipe's inverse of max pooling."""
    values, indices, (kernel, stride, _) = site.input(0), site.input(1), judged(_pooling(site))
    # Windows that do not overlap cover the output without padding; the padding option has no effect.
    batch, height, width, channels = values.shape
    shape = (batch, height * kernel[0], width * kernel[1], channels)
    window = window_over(shape, kernel, stride, same=False)
    return emit.node("unpool", [values, indices], shape, Unpool(window))
