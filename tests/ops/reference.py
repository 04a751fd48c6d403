"""The operators in float64 numpy, NHWC: what every kernel is judged by.

Each function follows the meaning that TensorFlow gives the operator and nothing of how tflgpu computes it. They are
written to be evidently right rather than fast: a sliding window is a loop over its taps. Operators that numpy has under
their own name are missing here, and those with a sliding window are in ``windows.py``. ``test_reference.py`` compares
all with LiteRT.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def relu(x: Array) -> Array:
    return np.maximum(x, 0)


def relu6(x: Array) -> Array:
    return np.clip(x, 0, 6)


def relu_n1_to_1(x: Array) -> Array:
    return np.clip(x, -1, 1)


def relu_0_to_1(x: Array) -> Array:
    return np.clip(x, 0, 1)


def hard_swish(x: Array) -> Array:
    return x * relu6(x + 3) / 6


def elu(x: Array) -> Array:
    return np.where(x < 0, np.expm1(x), x)


def rsqrt(x: Array) -> Array:
    return 1 / np.sqrt(x)


def squared_difference(x: Array, y: Array) -> Array:
    return np.square(x - y)


def truncated_div(x: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
    """Integer division that rounds towards zero."""
    magnitude = np.abs(x) // np.abs(y)
    return np.asarray(np.where((x < 0) != (y < 0), -magnitude, magnitude))


def gelu(x: Array) -> Array:
    """``x`` times the normal distribution's share below it."""
    result: Array = 0.5 * x * (1 + np.vectorize(math.erf, otypes=[np.float64])(x / np.sqrt(2)))
    return result


def gelu_approximate(x: Array) -> Array:
    """Hendrycks and Gimpel's approximation with a hyperbolic tangent (arXiv 1606.08415)."""
    result: Array = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return result


def logistic(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def prelu(x: Array, alpha: Array) -> Array:
    return np.where(x < 0, alpha * x, x)


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "NONE": np.positive,
    "RELU": relu,
    "RELU6": relu6,
    "RELU_N1_TO_1": relu_n1_to_1,
    "TANH": np.tanh,
}


def fully_connected(x: Array, weights: Array, bias: Array, keep_num_dims: bool = False) -> Array:
    """``weights`` are [O, I]; unless ``keep_num_dims``, everything that is not I is one batch axis."""
    rows = x if keep_num_dims else x.reshape(-1, weights.shape[1])
    return rows @ weights.T + bias


def softmax(x: Array, beta: float = 1.0) -> Array:
    exponentials: Array = np.exp(beta * (x - x.max(axis=-1, keepdims=True)))
    total: Array = exponentials.sum(axis=-1, keepdims=True)
    return exponentials / total


def l2_normalization(x: Array) -> Array:
    norm: Array = np.sqrt(np.square(x).sum(axis=-1, keepdims=True))
    return x / np.maximum(norm, 1e-6)


def local_response_normalization(x: Array, radius: int, bias: float, alpha: float, beta: float) -> Array:
    """Krizhevsky's: each channel beside the squares of those at most ``radius`` away."""
    padded = np.pad(np.square(x), [(0, 0)] * (x.ndim - 1) + [(radius, radius)])
    total = sum((padded[..., i : i + x.shape[-1]] for i in range(2 * radius + 1)), np.zeros(()))
    result: Array = x * np.power(bias + alpha * total, -beta)
    return result


def cumsum(x: NDArray[Any], axis: int, exclusive: bool, reverse: bool) -> NDArray[Any]:
    line = np.flip(x, axis) if reverse else x
    total = np.cumsum(line, axis, x.dtype) - (line if exclusive else 0)
    return np.flip(total, axis) if reverse else total


def top_k(x: NDArray[Any], k: int) -> tuple[NDArray[Any], NDArray[np.int32]]:
    """The greatest of the last axis in descending order, of equal ones the first; and where they stood."""
    descending = -x if x.dtype.kind == "f" else ~x  # the least integer has no negative
    order = np.argsort(descending, axis=-1, kind="stable")[..., :k]
    return np.take_along_axis(x, order, axis=-1), order.astype(np.int32)


@dataclass(frozen=True)
class SliceSpec:
    """STRIDED_SLICE's constants and masks; bit i of a mask speaks of entry i of the constants."""

    begin: Sequence[int]
    end: Sequence[int]
    strides: Sequence[int]
    begin_mask: int = 0
    end_mask: int = 0
    ellipsis_mask: int = 0
    new_axis_mask: int = 0
    shrink_axis_mask: int = 0

    def index(self) -> tuple[slice | int | EllipsisType | None, ...]:
        """The numpy index that means the same: Python took its slicing rules from the same place."""
        return tuple(map(self._entry, range(len(self.begin))))

    def _entry(self, i: int) -> slice | int | EllipsisType | None:
        bit = 1 << i
        if self.ellipsis_mask & bit:
            return ...
        if self.new_axis_mask & bit:
            return None
        if self.shrink_axis_mask & bit:
            return 0 if self.begin_mask & bit else self.begin[i]  # TensorFlow ignores the mask here, TFLite does not
        begin = None if self.begin_mask & bit else self.begin[i]
        end = None if self.end_mask & bit else self.end[i]
        return slice(begin, end, self.strides[i])


def strided_slice(x: Array, spec: SliceSpec) -> Array:
    return np.asarray(x[spec.index()])


def mirror_pad(x: Array, margins: Sequence[tuple[int, ...]], mode: str) -> Array:
    if mode == "REFLECT":
        return np.pad(x, margins, mode="reflect")
    return np.pad(x, margins, mode="symmetric")


def depth_to_space(x: Array, block: int) -> Array:
    batch, height, width, channels = x.shape
    pixels = x.reshape(batch, height, width, block, block, channels // block**2)
    return pixels.transpose(0, 1, 3, 2, 4, 5).reshape(batch, height * block, width * block, -1)


def space_to_depth(x: Array, block: int) -> Array:
    batch, height, width, channels = x.shape
    pixels = x.reshape(batch, height // block, block, width // block, block, channels)
    return pixels.transpose(0, 1, 3, 2, 4, 5).reshape(batch, height // block, width // block, -1)


def space_to_batch(x: Array, block: Sequence[int], paddings: Sequence[tuple[int, int]]) -> Array:
    """Every ``block``-th pixel of the padded images, for each place in a block."""
    padded = np.pad(x, [(0, 0), *paddings, *[(0, 0)] * (x.ndim - 1 - len(block))])
    places = np.ndindex(*block)
    return np.concatenate(
        [padded[(slice(None), *(slice(p, None, b) for p, b in zip(place, block, strict=True)))] for place in places]
    )


def batch_to_space(x: Array, block: Sequence[int], crops: Sequence[tuple[int, int]]) -> Array:
    """Every image becomes every ``block``-th pixel of a larger one, which is then cropped."""
    places = list(np.ndindex(*block))
    sizes = [d * b for d, b in zip(x.shape[1:], block, strict=False)]
    images = np.zeros((len(x) // len(places), *sizes, *x.shape[1 + len(block) :]), x.dtype)
    for place, part in zip(places, np.split(x, len(places)), strict=True):
        images[(slice(None), *(slice(p, None, b) for p, b in zip(place, block, strict=True)))] = part
    kept = (slice(before, size - after) for size, (before, after) in zip(sizes, crops, strict=True))
    return images[(slice(None), *kept)]


def gather(x: Array, indices: NDArray[np.integer], axis: int, batch_dims: int) -> Array:
    if batch_dims == 0:
        return np.take(x, indices, axis)
    pairs = zip(x, indices, strict=True)
    return np.stack([gather(image, row, axis - 1, batch_dims - 1) for image, row in pairs])


def one_hot(indices: NDArray[np.integer], depth: int, on: Array, off: Array, axis: int) -> Array:
    hot = indices[..., np.newaxis] == np.arange(depth)
    return np.moveaxis(np.where(hot, on, off), -1, axis)


def dynamic_update_slice(x: Array, update: Array, start: NDArray[np.integer]) -> Array:
    first = np.clip(start, 0, np.subtract(x.shape, update.shape))
    result = x.copy()
    result[tuple(slice(f, f + size) for f, size in zip(first, update.shape, strict=True))] = update
    return result


def resize_bilinear(
    x: Array, size: tuple[int, int], align_corners: bool = False, half_pixel_centers: bool = False
) -> Array:
    """Linear interpolation along height, then width."""
    for axis, length in zip((1, 2), size, strict=True):
        x = _resize_linear(x, axis, length, align_corners, half_pixel_centers)
    return x


def _resize_linear(x: Array, axis: int, length: int, align_corners: bool, half_pixel_centers: bool) -> Array:
    last = x.shape[axis] - 1
    if align_corners and length > 1:
        position = np.arange(length) * (last / (length - 1))
    else:
        center = 0.5 if half_pixel_centers else 0.0
        position = (np.arange(length) + center) * (x.shape[axis] / length) - center
    position = np.clip(position, 0, last)  # beyond its outermost pixels an image is constant
    lower = np.floor(position).astype(int)
    upper = np.minimum(lower + 1, last)
    weight: Array = np.expand_dims(position - lower, tuple(range(1, x.ndim - axis)))
    before: Array = np.take(x, lower, axis)
    after: Array = np.take(x, upper, axis)
    return before * (1 - weight) + after * weight


def resize_nearest_neighbor(
    x: Array, size: tuple[int, int], align_corners: bool = False, half_pixel_centers: bool = False
) -> Array:
    for axis, length in zip((1, 2), size, strict=True):
        extent = x.shape[axis]
        if align_corners and length > 1:
            source = [round_half_up(i * (extent - 1), length - 1) for i in range(length)]
        elif half_pixel_centers:
            source = [(2 * i + 1) * extent // (2 * length) for i in range(length)]
        else:
            source = [i * extent // length for i in range(length)]
        x = np.take(x, np.minimum(source, extent - 1), axis)
    return x


def round_half_up(numerator: int, denominator: int) -> int:
    return (2 * numerator + denominator) // (2 * denominator)


def resampler(images: Array, warp: Array) -> Array:
    """Bilinear, at (x, y) in images that lie in zeros, as tfa.image.resampler is documented."""
    height, width = images.shape[1:3]
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    result = np.zeros((*warp.shape[:-1], images.shape[3]))
    for place in np.ndindex(*warp.shape[:-1]):
        x, y = warp[place] + 1
        if 0 < x < width + 1 and 0 < y < height + 1:
            left, top = int(x), int(y)
            around = padded[place[0], top : top + 2, left : left + 2]
            columns, rows = (left + 1 - x, x - left), (top + 1 - y, y - top)
            result[place] = np.einsum("y,x,yxc->c", rows, columns, around)
    return result


def stablehlo_scatter(
    x: NDArray[Any],
    indices: NDArray[np.integer],
    updates: NDArray[Any],
    options: dict[str, Any],
    join: Callable[[Any, Any], Any],
) -> NDArray[Any]:
    """Element by element, as StableHLO's specification has it; what leaves the operand is dropped."""
    result, windows, vector = x.copy(), options["update_window_dims"], options["index_vector_dim"]
    starts = indices[..., np.newaxis] if vector == indices.ndim else np.moveaxis(indices, vector, -1)
    for place in np.ndindex(*updates.shape):
        window = iter([place[i] for i in windows])
        at = [0 if axis in options["inserted_window_dims"] else next(window) for axis in range(x.ndim)]
        start = starts[tuple(p for i, p in enumerate(place) if i not in windows)]
        for axis, first in zip(options["scatter_dims_to_operand_dims"], start, strict=True):
            at[axis] += int(first)
        if all(0 <= a < size for a, size in zip(at, x.shape, strict=True)):
            result[tuple(at)] = join(result[tuple(at)], updates[place])
    return result


def spectrogram(sound: Array, window: int, stride: int, squared: bool) -> Array:
    """The spectrogram of sound [samples, channels], under a periodic Hann window, as LiteRT's spectrogram.cc has it."""
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)
    points = 1 << (window - 1).bit_length()
    starts = range(0, len(sound) - window + 1, stride)
    frames = np.stack([sound[start : start + window].T * hann for start in starts], 1)
    magnitudes = np.abs(np.fft.rfft(frames, points))
    return np.square(magnitudes) if squared else magnitudes


def mfcc(x: Array, rate: int, low: float, high: float, channels: int, coefficients: int) -> Array:
    """The coefficients of squares of magnitudes, as LiteRT's mfcc_mel_filterbank.cc and mfcc_dct.cc have it."""
    count = x.shape[-1]
    hertz = 0.5 * rate / (count - 1)
    if int(high / hertz) >= count:
        return np.zeros((*x.shape[:-1], coefficients))
    mel_low, mel_high = (1127 * math.log1p(f / 700) for f in (low, high))
    edges = np.linspace(mel_low, mel_high, channels + 2)
    energies = np.zeros((*x.shape[:-1], channels))
    for i in range(int(1.5 + low / hertz), int(high / hertz) + 1):
        mel, channel = 1127 * math.log1p(i * hertz / 700), 0
        while channel < channels and edges[channel + 1] < mel:
            channel += 1
        share = (edges[channel + 1] - mel) / (edges[channel + 1] - edges[channel])
        if channel > 0:
            energies[..., channel - 1] += share * np.sqrt(x[..., i])
        if channel < channels:
            energies[..., channel] += (1 - share) * np.sqrt(x[..., i])
    cosines = np.cos(np.pi / channels * np.outer(np.arange(coefficients), np.arange(channels) + 0.5))
    result: Array = math.sqrt(2 / channels) * np.log(np.maximum(energies, 1e-12)) @ cosines.T
    return result
