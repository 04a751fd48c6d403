"""The sigmoid and the hyperbolic tangent of LiteRT's integer LSTM, for all numbers of 16 bits.

Its kernels compute them in fixed point with 16 bits: an exponential by a Taylor series on an interval and a factor for
each higher bit, and a reciprocal by three steps of Newton's method. Here all of it runs on arrays, in the same order,
with the same rounding; a kernel looks the results up.
"""

from __future__ import annotations

import numpy as np

from tflgpu.graph.ir import Array

ONE = (1 << 15) - 1  # nearest to 1 with no bits before the point

LEAST = -(1 << 15)

QUARTER = 2  # 1/4 is 2^-2

NUMBERS = np.arange(LEAST, ONE + 1)


def sigmoids() -> Array:
    """Return 2^15 times the sigmoid of each multiple of 2^-12, [2^16]."""
    x = np.where(NUMBERS > 0, NUMBERS, -NUMBERS)
    above = np.clip(_doubled(_newton(_exponential(-x, 3)), 1), LEAST, ONE)
    return np.where(NUMBERS == 0, 1 << 14, np.where(NUMBERS > 0, above, ONE - above)).astype(np.int16)


def tangents(bits: int) -> Array:
    """Return 2^15 times the hyperbolic tangent of each 16-bit number, [2^16].

    Args:
        bits: Bits of a number before the point.
    """
    below = _doubled(_newton(_exponential(np.minimum(NUMBERS, -NUMBERS), bits + 1)) - (1 << 13), 2)
    return np.where(NUMBERS == 0, 0, np.where(NUMBERS < 0, -below, below)).astype(np.int16)


def _product(a: Array | int, b: Array | int) -> Array:
    """Return ``a * b / 2^15``, halves rounded up."""
    rounded: Array = np.asarray(a, np.int64) * b + (1 << 14) >> 15
    return np.minimum(rounded, ONE)


def _halved(x: Array, times: int) -> Array:
    """Return ``x / 2^times``, halves rounded away from zero."""
    return np.asarray((x + (1 << times - 1) + (x >> 63)) >> times)


def _doubled(x: Array, times: int) -> Array:
    return np.asarray(np.clip(x << times, LEAST, ONE))


def _constant(x: float) -> int:
    """Return a constant with no bits before the point; of 31 bits first, as LiteRT's are written."""
    return int(_halved(np.array(round(x * 2**31)), 16))


def _exponential(x: Array, bits: int) -> Array:
    """Return the exponential of numbers up to 0, which have ``bits`` bits before the point."""
    quarter = 1 << 15 - bits - QUARTER
    part = (x & quarter - 1) - quarter
    near, factor = _doubled(part, bits) + (1 << 12), _constant(np.exp(-1 / 8))  # around -1/8
    square = _product(near, near)
    higher = _halved(_product(square, square), 2) + _product(square, near)
    series = near + _halved(_product(higher, _constant(1 / 3)) + square, 1)
    result = np.minimum(factor + _product(factor, series), ONE)
    rest = part - x
    for exponent in range(-QUARTER, bits):
        is_set = rest & 1 << 15 - bits + exponent
        result = np.where(is_set, _product(result, _constant(np.exp(-(2.0**exponent)))), result)
    if bits > 5:
        result = np.where(x < -32 << 15 - bits, 0, result)
    return np.where(x == 0, ONE, result)


def _newton(x: Array) -> Array:
    """Return ``2 / (1 + x)`` for numbers from 0 to 1; two bits are before its point."""
    half = x + ONE + 1 >> 1
    found = _wide(48 / 17) + _product(half, _wide(-32 / 17))
    for _ in range(3):
        found = found + _doubled(_product(found, (1 << 13) - _product(half, found)), 2)
    return found


def _wide(x: float) -> int:
    """Return a constant with two bits before the point."""
    return _constant(x / 4)
