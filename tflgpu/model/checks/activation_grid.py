"""Grids that the integers of activations lie on."""

from __future__ import annotations

from tflgpu.errors import ModelError
from tflgpu.model.tensor_info import Quantization

TYPES = ("int8", "uint8", "int16")

MOST_ZERO_POINT = 1 << 16  # kernels subtract it in 32 bits; one that the type does not have is none of their concern


def check_grid(where: str, dtype: str, quantization: Quantization | None) -> None:
    """Accept zero points that kernels can count with.

    Args:
        where: The tensor, for the message.
        dtype: Its element type.
        quantization: None if it has none.

    Raises:
        ModelError: A zero point is beyond that.
    """
    if quantization is None or dtype not in TYPES:
        return
    for zero_point in quantization.zero_point:
        if abs(zero_point) > MOST_ZERO_POINT:
            raise ModelError(
                f"{where} is {dtype} with the zero point {zero_point}; one of at most {MOST_ZERO_POINT} was expected"
            )
