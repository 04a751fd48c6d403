"""A model whose kernels each need the one before."""

from __future__ import annotations

import numpy as np

from tests.support.models import Builder


def chain() -> bytes:
    """softmax(softmax(x) * mean(x)): kernels of which each needs the one before."""
    builder = Builder()
    x = builder.input((1, 4, 4, 8))
    axes = builder.ints([1, 2])
    curve = builder.add("SOFTMAX", [x], (1, 4, 4, 8), beta=1.0)
    mean = builder.add("MEAN", [x, axes], (1, 1, 1, 8), keep_dims=True)
    product = builder.add("MUL", [curve, mean], (1, 4, 4, 8))
    return builder.finish([builder.add("SOFTMAX", [product], (1, 4, 4, 8), beta=1.0)])


def expected(x: np.ndarray) -> np.ndarray:
    def softmax(v: np.ndarray) -> np.ndarray:
        powers = np.exp(v - v.max(-1, keepdims=True))
        return powers / powers.sum(-1, keepdims=True)

    x = x.astype(np.float64)
    return softmax(softmax(x) * x.mean((1, 2), keepdims=True))


X = np.random.default_rng(0).normal(size=(1, 4, 4, 8)).astype(np.float32)
