"""Constants that numpy has no type for, and that stay bytes: their length and structure."""

from __future__ import annotations

from itertools import pairwise
from math import prod

import numpy as np
from numpy.typing import NDArray

from tflgpu.errors import ModelError
from tflgpu.graph.layout import Shape

BITS = {"int4": 4, "bfloat16": 16}


def check_raw(where: str, data: NDArray[np.uint8], dtype: str, shape: Shape) -> None:
    """Accept bytes that fit the shape and the element type.

    Args:
        where: The tensor, for the message.
        data: Its bytes.
        dtype: Its element type.
        shape: Its shape.

    Raises:
        ModelError: They do not fit.
    """
    count = prod(shape)
    if dtype in BITS and data.size != -(-count * BITS[dtype] // 8):
        raise ModelError(
            f"{where} has {data.size} bytes of data, which is not what shape {list(shape)} of {dtype} needs"
        )
    if dtype == "string" and not _holds_strings(data, count):
        raise ModelError(f"{where} of shape {list(shape)} has {data.size} bytes of data that are not {count} strings")
    if dtype in ("resource", "variant"):
        raise ModelError(f"{where} is a {dtype} with a value, which exists only while a model runs")


def _holds_strings(data: NDArray[np.uint8], count: int) -> bool:
    """Whether the bytes are their number, where each begins and the last ends, and the characters."""
    header = 4 * (count + 2)
    if data.size < header:
        return False
    found, *places = data[:header].view("<i4").tolist()
    inside = places[0] == header and places[-1] <= data.size
    return found == count and inside and all(a <= b for a, b in pairwise(places))
