"""What the integers of activations stand for: LiteRT's kernels divide by the scale, and make indices of the result."""

from __future__ import annotations

from math import isfinite

import numpy as np

from tflgpu.errors import ModelError
from tflgpu.model.tensor_info import Quantization

TYPES = ("int8", "uint8", "int16")

LEAST_SCALE = float(np.finfo(np.float32).tiny)

MOST_ZERO_POINT = 1 << 16  # kernels subtract it in 32 bits; one that the type does not have is none of their concern


def check_grid(where: str, dtype: str, quantization: Quantization | None) -> None:
    """Raises ModelError for a scale that is not positive, or a zero point beyond what kernels count with.

    where: the tensor, none with data: constants have been seen with scales of 0 for channels of zeros.
    """
    if quantization is None or dtype not in TYPES:
        return
    for scale, zero_point in zip(quantization.scale, quantization.zero_point, strict=True):
        if not (isfinite(scale) and scale >= LEAST_SCALE and abs(zero_point) <= MOST_ZERO_POINT):
            raise ModelError(
                f"{where} is {dtype} with the scale {scale:g} and the zero point {zero_point}; a positive scale and a "
                f"zero point of at most {MOST_ZERO_POINT} were expected"
            )
