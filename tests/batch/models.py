"""A small model of two inputs, its inputs, and what it computes."""

from __future__ import annotations

import numpy as np

from tflgpu.model.writer import ModelBuilder

ROW = (2, 3)

ROWS = 800  # of a prediction over several workers: three parts


def exponentials(rows: int = 1, free: bool = False) -> bytes:
    """y = exp(x) and z = x + w, of two inputs with ``rows`` rows."""
    builder = ModelBuilder()
    shape, signature = (rows, *ROW), (-1, *ROW) if free else None
    x, w = (builder.input(shape, name=name, shape_signature=signature) for name in "xw")
    y, z = (builder.tensor(shape, name=name, shape_signature=signature) for name in "yz")
    builder.op("EXP", [x], [y])
    builder.op("ADD", [x, w], [z], {"fused_activation_function": "NONE"})
    return builder.finish([y, z])


def columns(count: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(count)
    x, w = random.normal(size=(2, count, *ROW)).astype(np.float32)
    return {"x": x, "w": w}


def check(got: dict[str, np.ndarray], given: dict[str, np.ndarray]) -> None:
    np.testing.assert_allclose(got["y"], np.exp(given["x"].astype(np.float64)), rtol=1e-5)
    np.testing.assert_array_equal(got["z"], given["x"] + given["w"])
