"""Operators with a window that slides over an image, in float64 numpy, NHWC; see ``reference.py``."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
_ZERO: Array = np.zeros(())


@dataclass(frozen=True)
class Window:
    """A window that slides over H and W; every pair is (height, width), ``padding`` is SAME or VALID."""

    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    padding: str = "VALID"

    def positions(self, axis: int, size: int) -> tuple[int, int, int]:
        """Positions along ``axis`` (0 height, 1 width) of ``size`` pixels; the padding before and after."""
        reach = (self.kernel[axis] - 1) * self.dilation[axis] + 1
        stride = self.stride[axis]
        if self.padding == "VALID":
            return (size - reach) // stride + 1, 0, 0
        positions = -(-size // stride)
        missing = max(0, (positions - 1) * stride + reach - size)
        return positions, missing // 2, missing - missing // 2

    def taps(self, x: Array, fill: float = 0.0) -> Iterator[tuple[int, int, Array]]:
        """Each tap's row, column and the [B, OH, OW, C] pixels under it; padding pixels are ``fill``."""
        rows, top, bottom = self.positions(0, x.shape[1])
        columns, left, right = self.positions(1, x.shape[2])
        padded = np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=fill)
        for row in range(self.kernel[0]):
            for column in range(self.kernel[1]):
                y0, x0 = row * self.dilation[0], column * self.dilation[1]
                below = padded[:, y0 :: self.stride[0], x0 :: self.stride[1]]
                yield row, column, below[:, :rows, :columns]


def conv_2d(x: Array, filters: Array, bias: Array, window: Window) -> Array:
    """``filters`` are [O, KH, KW, C / groups]; output channels belong to the groups in order."""
    groups = x.shape[3] // filters.shape[3]

    def tap_sum(channels: Array, group_filters: Array) -> Array:
        taps = window.taps(channels)
        return sum((pixels @ group_filters[:, row, column].T for row, column, pixels in taps), _ZERO)

    pairs = zip(np.split(x, groups, axis=3), np.split(filters, groups), strict=True)
    return np.concatenate([tap_sum(*pair) for pair in pairs], axis=3) + bias


def depthwise_conv_2d(x: Array, filters: Array, bias: Array, window: Window) -> Array:
    """``filters`` are [1, KH, KW, C * M]; output channel ``c * M + m`` reads input channel ``c``."""
    multiplier = filters.shape[3] // x.shape[3]
    taps = window.taps(np.repeat(x, multiplier, axis=3))
    return sum((pixels * filters[0, row, column] for row, column, pixels in taps), _ZERO) + bias


def transpose_conv(x: Array, filters: Array, bias: Array, window: Window, output_size: tuple[int, int]) -> Array:
    """Each input pixel adds a scaled copy of the [O, KH, KW, C] ``filters`` to the output.

    ``window`` is that of the convolution that this transposes: from ``output_size`` to the size of ``x``.
    """
    batch, height, width, _ = x.shape
    (stride_y, stride_x), (kernel_h, kernel_w) = window.stride, window.kernel
    _, top, _ = window.positions(0, output_size[0])
    _, left, _ = window.positions(1, output_size[1])
    bottom, right = top + output_size[0], left + output_size[1]
    reach_y, reach_x = (height - 1) * stride_y + kernel_h, (width - 1) * stride_x + kernel_w
    canvas = np.zeros((batch, max(reach_y, bottom), max(reach_x, right), len(filters)))
    for row in range(kernel_h):
        for column in range(kernel_w):
            rows = slice(row, row + (height - 1) * stride_y + 1, stride_y)
            columns = slice(column, column + (width - 1) * stride_x + 1, stride_x)
            canvas[:, rows, columns] += x @ filters[:, row, column].T
    return canvas[:, top:bottom, left:right] + bias


def average_pool_2d(x: Array, window: Window) -> Array:
    """The mean over the window's pixels that lie inside of ``x``."""
    total = sum((pixels for _, _, pixels in window.taps(x)), _ZERO)
    count = sum((pixels for _, _, pixels in window.taps(np.ones_like(x))), _ZERO)
    return total / count


def max_pool_2d(x: Array, window: Window) -> Array:
    return functools.reduce(np.maximum, (pixels for _, _, pixels in window.taps(x, fill=-np.inf)))


def l2_pool_2d(x: Array, window: Window) -> Array:
    return np.sqrt(average_pool_2d(np.square(x), window))
