"""Rows of the operators that lead into and out of quantized tensors; everything between is the float view."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from .case import Net, Row, Tensor
from .strategies import BOOL, shapes


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


ROWS = (
    Row("quantize", "QUANTIZE", quantize_dequantize),
    Row("dequantize", "DEQUANTIZE", quantize_dequantize),
)
