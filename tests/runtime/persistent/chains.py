"""A model whose kernels each need the one before."""

from __future__ import annotations

import numpy as np

from tflgpu.model.writer import ModelBuilder


def chain() -> bytes:
    """softmax(softmax(x) * mean(x)): kernels of which each needs the one before."""
    builder = ModelBuilder()
    x, product = builder.input((1, 4, 4, 8)), builder.tensor((1, 4, 4, 8))
    curve, mean, result = builder.tensor((1, 4, 4, 8)), builder.tensor((1, 1, 1, 8)), builder.tensor((1, 4, 4, 8))
    axes = builder.constant(np.array([1, 2], np.int32))
    builder.op("SOFTMAX", [x], [curve], {"beta": 1.0})
    builder.op("MEAN", [x, axes], [mean], {"keep_dims": True})
    builder.op("MUL", [curve, mean], [product], {"fused_activation_function": "NONE"})
    builder.op("SOFTMAX", [product], [result], {"beta": 1.0})
    return builder.finish([result])


def expected(x: np.ndarray) -> np.ndarray:
    def softmax(v: np.ndarray) -> np.ndarray:
        powers = np.exp(v - v.max(-1, keepdims=True))
        return powers / powers.sum(-1, keepdims=True)

    x = x.astype(np.float64)
    return softmax(softmax(x) * x.mean((1, 2), keepdims=True))


X = np.random.default_rng(0).normal(size=(1, 4, 4, 8)).astype(np.float32)
