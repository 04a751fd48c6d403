"""A layer by weights of 4 bits, and whether its results are those of numpy."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import tflgpu
from tflgpu.model.writer import ModelBuilder

ROWS, DEPTH, OUT, BLOCK = 5, 256, 70, 64


def constants() -> tuple[np.ndarray, np.ndarray]:
    """Weights of 4 bits, and the scales of their blocks."""
    random = np.random.default_rng(0)
    weights = random.integers(-8, 8, (OUT, DEPTH)).astype(np.int8)
    return weights, random.uniform(0.01, 0.02, (OUT, DEPTH // BLOCK)).astype(np.float32)


def model() -> bytes:
    builder = ModelBuilder()
    image = builder.input((ROWS, DEPTH), name="image")
    product, result = builder.tensor((ROWS, OUT)), builder.tensor((ROWS, OUT), name="result")
    builder.op("FourBitDense", [image, *map(builder.constant, constants())], [product], custom_options=b"")
    builder.op("TANH", [product], [result])
    return builder.finish([result])


def expected(image: np.ndarray) -> np.ndarray:
    weights, scales = constants()
    return np.tanh(image @ (weights * np.repeat(scales, BLOCK, axis=1)).T)


def compiled_model(precision: Any) -> tflgpu.CompiledModel:
    try:
        return tflgpu.compile(model(), tflgpu.Options(precision=precision))
    except tflgpu.ModelError as error:
        sys.exit(f"{error}\nfirst install the package of this operator: pip install ./examples/four_bit_weights")


def main() -> None:
    image = np.random.default_rng(1).standard_normal((ROWS, DEPTH)).astype(np.float32)
    for precision, tolerance in (("fp32", 1e-5), ("fp16", 5e-3)):
        with compiled_model(precision) as compiled:
            result = compiled.run(image)["result"]
            operators = ", ".join(f"{o.code} on the {o.device}" for o in compiled.report.operators)
            kernels = compiled.report.kernels
        np.testing.assert_allclose(result, expected(image), atol=tolerance)
        print(f"{precision}: {operators}; kernels: {kernels}; as numpy computes it")


if __name__ == "__main__":
    main()
