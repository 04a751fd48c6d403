"""A small model of 8-bit integers."""

from __future__ import annotations

import numpy as np

from tests.support.models import Builder
from tflgpu.model.tensor_info import Quantization

SHAPE = (1, 6, 5, 8)
CHANNELS = 16


def quantized_model(dtype: str = "int8") -> bytes:
    """Two convolutions, and a depthwise one between them. dtype: int8, or uint8, whose weights have a zero point."""
    builder, rng = Builder(), np.random.default_rng(0)
    zero = 20 if dtype == "uint8" else 0

    def grid(scale: float, middle: int) -> Quantization:
        return Quantization([scale], [middle + (128 if dtype == "uint8" else 0)])

    def weighted(code: str, x: int, kernel: tuple[int, ...], scale: float, **options: int) -> int:
        integers = (rng.integers(-100, 101, kernel) + zero).astype(dtype)
        weights = builder.constant(integers, quantization=Quantization([0.01], [zero]))
        biases = rng.integers(-90, 91, CHANNELS).astype(np.int32)
        bias = builder.constant(biases, quantization=Quantization([0.01 * scale], [0]))
        options |= {"stride_h": 1, "stride_w": 1}
        shape = (*SHAPE[:3], CHANNELS)
        return builder.add(
            code, [x, weights, bias], shape, dtype, quantization=grid(0.06, -20), padding="SAME", **options
        )

    x = builder.input(SHAPE, dtype, quantization=grid(0.02, 5))
    x = weighted("CONV_2D", x, (CHANNELS, 3, 3, SHAPE[3]), 0.02)
    x = weighted("DEPTHWISE_CONV_2D", x, (1, 3, 3, CHANNELS), 0.06, depth_multiplier=1)
    return builder.finish([weighted("CONV_2D", x, (CHANNELS, 1, 1, CHANNELS), 0.06)])
