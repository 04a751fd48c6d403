"""Custom operators of MediaPipe's models: convolution and pooling of their own, and crops around landmarks.

Options of the convolution and of pooling are raw C structs of 32-bit integers (TfLiteTransposeConvParams and
TfLitePoolParams). Operators around landmarks are those of version 2, as in mediapipe/util/tflite/operations of
google-ai-edge/mediapipe; their options are maps of FlexBuffers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, NamedTuple

import numpy as np

from tflgpu.graph.ir import Tensor
from tflgpu.graph.layout import Shape
from tflgpu.model.operator_options import map_of_options
from tflgpu.ops.declaration import Emitter, Site, declare, judged
from tflgpu.ops.image.convolution import TransposeConvolution, bias_reasons, convolution_node
from tflgpu.ops.image.window import Pool, Window, fit_reasons, window_over

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


MATRIX: Shape = (1, 4, 4)
MOST = 1 << 14  # pixels of a crop along an axis


@dataclass(frozen=True)
class Crop:
    """Inputs: landmarks [1, n, 3] as (x, y, z), and the numbers of some of them. The matrix from a crop to the image.

    The line from landmark ``ends[0]`` to ``ends[1]`` has the angle ``radians`` in the crop, which is ``scale`` times as
    large as the box around the landmarks of the second input. size: of the crop in pixels. Both as (x, y).
    """

    ends: tuple[int, int]
    radians: float
    scale: tuple[float, float]
    size: tuple[int, int]


def _numbers(options: Mapping[str, Any], *names: str) -> tuple[float, ...] | None:
    values = [options.get(name) for name in names]
    if not all(isinstance(v, int | float) and not isinstance(v, bool) and isfinite(v) for v in values):
        return None
    return tuple(values)  # type: ignore[arg-type]


def _whole(values: Sequence[Any] | None, least: int, most: int) -> tuple[int, ...] | None:
    """Return the values, if they are whole numbers from ``least`` to ``most``."""
    if values is None or not all(isinstance(v, int) and least <= v <= most for v in values):
        return None
    return tuple(values)


def _size(options: Mapping[str, Any]) -> tuple[int, ...] | None:
    return _whole(_numbers(options, "output_width", "output_height"), 1, MOST)


def _crop(site: Site) -> tuple[Crop, tuple[int, ...]] | None:
    """Return the crop, and the landmarks that it surrounds; None if the options are not those of one."""
    options, most = map_of_options(site.options["custom_options"]), site.input(0).shape[1] - 1
    around = options.get("subset_idxs")
    scale, radians = _numbers(options, "scale_x", "scale_y"), _numbers(options, "target_rotation_radians")
    ends = _whole(_numbers(options, "left_rotation_idx", "right_rotation_idx"), 0, most)
    size, subset = _size(options), _whole(around if isinstance(around, list) else None, 0, most)
    if scale is None or min(scale) <= 0 or radians is None or ends is None or size is None or not subset:
        return None
    return Crop((ends[0], ends[1]), radians[0], (scale[0], scale[1]), (size[0], size[1])), subset


def _crop_reasons(site: Site) -> Iterator[str]:
    shape = site.input(0).shape
    if len(shape) != 3 or shape[0] != 1 or shape[2] != 3:
        yield f"its landmarks have shape {list(shape)}; [1, landmarks, 3] was expected"
    elif _crop(site) is None:
        yield "its options are not two landmarks for the angle, some to surround, an angle, scales and sizes"


@declare("Landmarks2TransformMatrix", versions=2, inputs=1, empty=False, reasons=_crop_reasons)
def landmarks_to_transform_matrix(site: Site, emit: Emitter) -> Tensor:
    """MediaPipe's matrix of the crop that surrounds landmarks."""
    crop, around = judged(_crop(site))
    inputs = site.input(0), emit.constant(np.array(around, np.int32))
    return emit.node("crop_matrix", inputs, MATRIX, crop, dtype="float32", precise=True)


def _matrix_reasons(site: Site) -> Iterator[str]:
    if site.input(1).shape != MATRIX:
        yield f"its matrix has shape {list(site.input(1).shape)}; {list(MATRIX)} was expected"


def _image_reasons(site: Site) -> Iterator[str]:
    yield from _matrix_reasons(site)
    shape = site.input(0).shape
    if len(shape) != 4 or shape[0] != 1:
        yield f"its image has shape {list(shape)}; [1, height, width, channels] was expected"
    if site.version < 2 or _size(map_of_options(site.options["custom_options"])) is None:
        yield "its options are not a height and a width of version 2"


@declare("TransformTensorBilinear", versions=2, inputs=2, empty=False, reasons=_image_reasons)
def transform_tensor_bilinear(site: Site, emit: Emitter) -> Tensor:
    """Return a crop of an image: bilinear samples at the places to which the matrix leads, zeros outside of the
    image."""
    image, (width, height) = site.input(0), judged(_size(map_of_options(site.options["custom_options"])))
    return emit.node("crop", [image, site.input(1)], (1, height, width, image.shape[3]))


def _landmark_reasons(site: Site) -> Iterator[str]:
    yield from _matrix_reasons(site)
    shape = site.input(0).shape
    if len(shape) != 3 or shape[0] != 1 or shape[2] not in (2, 3):
        yield f"its landmarks have shape {list(shape)}; [1, landmarks, 2 or 3] was expected"


@declare("TransformLandmarks", versions=2, inputs=2, empty=False, reasons=_landmark_reasons)
def transform_landmarks(site: Site, emit: Emitter) -> Tensor:
    """Return the matrix leads landmarks of a crop to the image; z stays."""
    landmarks = site.input(0)
    return emit.node("transformed_landmarks", [landmarks, site.input(1)], landmarks.shape, precise=True)
