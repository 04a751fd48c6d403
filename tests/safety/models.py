"""Small models whose answers are known."""

from __future__ import annotations

import numpy as np

from tests.support.models import Builder


def scaled(factor: float, batch: int = 1) -> bytes:
    """y = factor * x, for x of shape (1, 2, 2, 4); with ``batch`` -1, for any batch."""
    builder = Builder()
    x = builder.input((1, 2, 2, 4), shape_signature=(batch, 2, 2, 4), name="x")
    y = builder.add("MUL", [x, builder.constant(np.full(4, factor, np.float32))], (1, 2, 2, 4), name="y")
    return builder.finish([y])
