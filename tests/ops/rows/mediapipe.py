"""Rows of MediaPipe's custom operators. Their options, where they have any, are C structs of 32-bit integers."""

from __future__ import annotations

import struct
from functools import partial

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.kernels.portable import crops
from tests.ops import reference, windows
from tests.ops.case import Net, Row, Tensor, largest
from tests.ops.reference import Array
from tests.ops.strategies import BOOL, CHANNELS, SMALL, feature_map
from tests.ops.tolerance import EXACT
from tests.ops.windows import Window

PADDINGS = {"SAME": 1, "VALID": 2}  # TfLitePadding
SIZE = st.integers(1, 3)
MORE = st.integers(0, 2)
WINDOWS = st.integers(1, 5)  # along one axis


def transpose_convolution_with_bias(net: Net) -> Tensor:
    x, outputs = feature_map(net), net.draw(CHANNELS)
    stride, more = net.draw(st.tuples(SIZE, SIZE)), net.draw(st.tuples(MORE, MORE))
    kernel = stride[0] + more[0], stride[1] + more[1]  # XNNPACK, LiteRT's only kernel, leaves no gaps
    padding = net.draw(st.sampled_from(tuple(PADDINGS)))
    window = Window(kernel, stride, padding=padding)
    size = tuple(
        n * s if padding == "SAME" else (n - 1) * s + k for n, s, k in zip(x.shape[1:3], stride, kernel, strict=True)
    )
    terms = x.shape[3] * kernel[0] * kernel[1]
    filters = net.constant(net.normal((outputs, *kernel, x.shape[3]), terms**-0.5))
    bias = net.constant(net.normal((outputs,)))
    value = windows.transpose_conv(x.value, filters.value, bias.value, window, (size[0], size[1]))
    options = struct.pack("<3i", PADDINGS[padding], stride[1], stride[0])
    return net.op("Convolution2DTransposeBias", [x, filters, bias], value, terms=terms, custom_options=options)


def pool_and_unpool(net: Net, code: str = "MaxUnpooling2D") -> Tensor:
    """The maxima go back to where they were; what the indices between the two look like is their own affair."""
    kernel = net.draw(st.tuples(SIZE, SIZE))
    batch, channels = net.draw(st.integers(1, 3)), net.draw(CHANNELS)
    x = net.input(_distinct_in_windows(net, batch, net.draw(WINDOWS), net.draw(WINDOWS), kernel, channels))
    window = Window(kernel, kernel)
    pooled = windows.max_pool_2d(x.value, window)
    options = struct.pack("<6i", PADDINGS["VALID"], kernel[1], kernel[0], kernel[1], kernel[0], 0)
    outputs = net.ops("MaxPoolingWithArgmax2D", [x], [pooled, _argmax(x.value, window)], custom_options=options)
    spread = pooled.repeat(kernel[0], 1).repeat(kernel[1], 2)
    value = np.where(x.value == spread, x.value, 0)
    return net.op(code, outputs, value, custom_options=options)


def resampler(net: Net) -> Tensor:
    """At eighths of pixels, which half precision holds; some up to two pixels outside the image."""
    x = feature_map(net)
    places = (x.shape[0], *net.draw(st.lists(SMALL, max_size=3)), 2)
    limits = 8 * (np.array(x.shape[2:0:-1]) + 2)
    warp = (net.rng.integers(-16, limits, places) / 8).astype(np.float32)
    where = net.input(warp) if net.draw(BOOL) else net.constant(warp)
    value = reference.resampler(x.value, where.value)
    return net.op("Resampler", [x, where], value, magnitude=largest(x.value))


def landmarks_to_transform_matrix(net: Net) -> Tensor:
    count = net.draw(st.integers(2, 9))
    landmarks = net.input(net.rng.integers(-40, 40, (1, count, 3)).astype(np.float32))
    numbers = st.integers(0, count - 1)
    ends, around = net.draw(st.tuples(numbers, numbers)), net.draw(st.lists(numbers, min_size=1, max_size=12))
    radians = net.draw(st.sampled_from((0.0, 0.5, -2.0)))
    scale, size = np.array([1.5, 1.25]), np.array(net.draw(st.tuples(SIZE, SIZE)))
    value = crops.crop_matrix(landmarks.value[0], ends, around, radians, scale, size)[None]
    options = {
        "left_rotation_idx": ends[0],
        "right_rotation_idx": ends[1],
        "subset_idxs": around,
        "target_rotation_radians": radians,
        "scale_x": scale[0],
        "scale_y": scale[1],
        "output_width": int(size[0]),
        "output_height": int(size[1]),
    }
    magnitude = largest(landmarks.value)
    return net.op(
        "Landmarks2TransformMatrix",
        [landmarks],
        value,
        magnitude=magnitude,
        version=2,
        custom_options=crops.packed(options),
    )


def transform_tensor_bilinear(net: Net) -> Tensor:
    """At multiples of an eighth of a pixel, which all precisions hold, as a crop ends where the image does."""
    x = net.input(net.normal((1, *net.draw(st.tuples(WINDOWS, WINDOWS)), net.draw(CHANNELS))))
    matrix = net.input(net.rng.integers(-4, 5, (1, 4, 4)).astype(np.float32) / 4)
    height, width = net.draw(st.tuples(WINDOWS, WINDOWS))
    value = crops.crop(x.value[0], matrix.value[0], height, width)[None]
    options = crops.packed({"output_height": height, "output_width": width})
    magnitude = largest(x.value)
    return net.op("TransformTensorBilinear", [x, matrix], value, magnitude=magnitude, version=2, custom_options=options)


def transform_landmarks(net: Net) -> Tensor:
    landmarks = net.input(net.normal((1, net.draw(SMALL), net.draw(st.integers(2, 3)))))
    matrix = net.input(net.normal((1, 4, 4)))
    value = landmarks.value.copy()
    value[..., :2] = landmarks.value[..., :2] @ matrix.value[0, :2, :2].T + matrix.value[0, :2, 3]
    return net.op("TransformLandmarks", [landmarks, matrix], value, magnitude=4.0, version=2)


def _distinct_in_windows(
    net: Net, batch: int, rows: int, columns: int, kernel: tuple[int, int], channels: int
) -> NDArray[np.float32]:
    """An image in which no window has the same number twice, nor after rounding to half: ties are nobody's promise."""
    size = kernel[0] * kernel[1]
    ranks = np.argsort(net.rng.random((batch, rows, columns, channels, size))) - size // 2
    split = ranks.reshape(batch, rows, columns, channels, *kernel).transpose(0, 1, 4, 2, 5, 3)
    return split.reshape(batch, rows * kernel[0], columns * kernel[1], channels).astype(np.float32)


def _argmax(x: Array, window: Window) -> Array:
    """The number of the greatest element of each window, counted in rows."""
    return np.argmax([pixels for _, _, pixels in window.taps(x, fill=-np.inf)], axis=0).astype(np.float64)


ROWS = (
    Row("transpose_convolution_with_bias", "Convolution2DTransposeBias", transpose_convolution_with_bias),
    Row("max_pooling_with_argmax", "MaxPoolingWithArgmax2D", pool_and_unpool, EXACT),
    Row("max_unpooling", "MaxUnpooling2D", pool_and_unpool, EXACT),
    Row(
        "max_unpooling_of_litert",
        "LiteRtMaxUnpooling2D",
        partial(pool_and_unpool, code="LiteRtMaxUnpooling2D"),
        EXACT,
        litert=False,
    ),
    Row("resampler", "Resampler", resampler, litert=False),
    Row("landmarks_to_transform_matrix", "Landmarks2TransformMatrix", landmarks_to_transform_matrix, litert=False),
    Row("transform_tensor_bilinear", "TransformTensorBilinear", transform_tensor_bilinear, litert=False),
    Row("transform_landmarks", "TransformLandmarks", transform_landmarks, litert=False),
)
