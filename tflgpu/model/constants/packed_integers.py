"""Integers of 4 bits, two in a byte: the one with the even number in its lower half."""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import NDArray

from tflgpu.graph.layout import Shape


def unpacked_nibbles(data: NDArray[np.uint8], shape: Shape) -> NDArray[np.int8]:
    """Return the integers of a constant of 4 bits, -8 to 7.

    Args:
        data: Two integers in each byte, the first in the low bits.
        shape: The constant's.
    """
    both = np.empty((data.size, 2), np.int8)
    signed = data.view(np.int8)
    both[:, 0], both[:, 1] = (signed << 4) >> 4, signed >> 4
    return both.reshape(-1)[: prod(shape)].reshape(shape)
