"""Rows of the operators that lead into and out of quantized tensors; everything between is the float view."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.ops.case import Net, Row, Tensor
from tests.ops.rows.logic import COMPARISONS
from tests.ops.strategies import BOOL, shapes
from tests.ops.tolerance import EXACT, Tolerance

Array = NDArray[Any]


def quantize_dequantize(net: Net) -> Tensor:
    """Floats to the integer grid, perhaps to another grid, and back. No number lies near the middle of two."""
    shape, dtype = net.draw(shapes()), net.draw(st.sampled_from(("int8", "uint8", "int16")))
    scale, limits = float(np.float32(net.rng.uniform(0.01, 0.1))), np.iinfo(dtype)
    zero = 0 if dtype == "int16" else int(net.rng.integers(limits.min, limits.max))
    q = net.rng.integers(limits.min - 40, limits.max + 40, shape)
    x = net.input((scale * (q - zero + net.rng.uniform(-0.4, 0.4, shape))).astype(np.float32))
    value = scale * (np.clip(q, limits.min, limits.max).astype(np.float64) - zero)
    y = net.quantized("QUANTIZE", x, value, dtype, scale, zero)
    if net.draw(BOOL) and dtype != "int16":  # the same numbers, shifted by half of the integers
        other = {"int8": "uint8", "uint8": "int8"}[dtype]
        y = net.quantized("QUANTIZE", y, value, other, scale, zero + (128 if dtype == "int8" else -128))
    return net.op("DEQUANTIZE", [y], value)


def compare(net: Net, code: str, function: Callable[..., Array]) -> Tensor:
    """TFLite compares 8-bit tensors in multiples of 1/256, whatever their scales: near numbers are equal.

    With scales of whole multiples of 1/4096, its fixed-point numbers are exact up to the last rounding.
    """
    shape, zeros = net.draw(shapes(max_rank=4)), net.rng.integers(-128, 128, 2)
    operands, units = [], []
    for zero in zeros:
        scale, q = int(net.rng.integers(1, 60)), net.rng.integers(-128, 128, shape)
        x = net.input(((q - zero) * (scale / 4096)).astype(np.float32))
        operands.append(net.quantized("QUANTIZE", x, x.value, "int8", scale / 4096, int(zero)))
        units.append(_half_away(scale * (q - zero) / 16))
    return net.op(code, operands, function(*units))


def tabulated(net: Net, code: str) -> Tensor:
    return tabulate(net, code, net.draw(shapes(max_rank=4)))


def tabulate(net: Net, code: str, shape: Sequence[int]) -> Tensor:
    """A function that the kernels of 16 bits look up: linear between 513 values."""
    lowest, bounds, function = TABULATED[code]
    scale, result_scale = (float(np.float32(net.rng.uniform(0.5, 1) * bound / 2**15)) for bound in bounds)
    q = net.rng.integers(lowest, 2**15, shape)
    x = net.input((scale * q).astype(np.float32))
    x = net.quantized("QUANTIZE", x, x.value, "int16", scale, 0)
    value = result_scale * interpolated(function, scale, result_scale, q)
    # LiteRT computes its table in single precision, and is off by one at times: ONE_STEP.
    y = net.quantized(code, x, value, "int16", result_scale, 0, magnitude=result_scale * 2**15)
    return net.op("DEQUANTIZE", [y], value)


def interpolated(function: Callable[[Array], Array], scale: float, result_scale: float, q: Array) -> Array:
    """TFLite's LUTPopulateInt16 and LUTLookup for zero points of 0; the function has to exist around ``q`` only."""
    width, per_quantum = (2**16 - 1) / 512, 2**16 / (result_scale * (2**16 - 1))
    places = np.arange(0, 512.5, 0.5) * width - 2**15  # both ends and the middle of each segment
    with np.errstate(invalid="ignore", divide="ignore"):
        values = np.nan_to_num(function(scale * places) * per_quantum)
    ends, middles = values[::2], values[1::2]
    error = _half_away((_half_away(ends[:-1]) + ends[1:]) / 2) - _half_away(middles)
    table = _half_away(ends) - np.append(_half_away(error / 2), 0)
    table = np.clip(table, -(2**15), 2**15 - 1).astype(np.int64)
    start, end = table[256 + q // 128], table[257 + q // 128]
    return np.asarray(start + ((end - start) * (q % 128) + 64) // 128)


def _half_away(x: Array) -> Array:
    return np.asarray(np.trunc(x + np.copysign(0.5, x)))


# The lowest integer of the input, bounds of input and output, and the function.
TABULATED: dict[str, tuple[int, tuple[float, float], Callable[[Array], Array]]] = {
    "EXP": (-(2**15), (4.0, 60.0), np.exp),
    "LOG": (256, (10.0, 5.0), np.log),
    "RSQRT": (256, (10.0, 4.0), lambda x: 1 / np.sqrt(x)),
}

ONE_STEP = Tolerance(fp32=2**-15)  # of the largest result

ROWS = (
    *(
        Row(f"{code.lower()}_of_bytes", code, partial(compare, code=code, function=function), EXACT)
        for code, function in COMPARISONS
    ),
    *(Row(f"{code.lower()}_by_table", code, partial(tabulated, code=code), ONE_STEP) for code in TABULATED),
    Row("quantize", "QUANTIZE", quantize_dequantize),
    Row("dequantize", "DEQUANTIZE", quantize_dequantize),
)
