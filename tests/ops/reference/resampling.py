"""Operators that give an image another size, or read it between its pixels."""

from __future__ import annotations

import numpy as np

from tests.ops.reference.elementwise import Array


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
