"""A model with both custom operators, and whether its results are those of numpy."""

from __future__ import annotations

import struct
import sys
from typing import Any

import numpy as np

import tflgpu
from tflgpu.model.writer import ModelBuilder

SHAPE, THRESHOLD = (1, 6, 8, 5), 0.5


def model() -> bytes:
    builder = ModelBuilder()
    image = builder.input(SHAPE, name="image")
    smooth, small = builder.tensor(SHAPE), builder.tensor(SHAPE, name="result")
    builder.op("RowMedian", [image], [smooth])
    builder.op("SoftShrink", [smooth], [small], custom_options=struct.pack("<f", THRESHOLD))
    return builder.finish([small])


def expected(image: np.ndarray) -> np.ndarray:
    padded = np.pad(image, ((0, 0), (0, 0), (1, 1), (0, 0)), mode="edge")
    smooth = np.median([padded[:, :, :-2], padded[:, :, 1:-1], padded[:, :, 2:]], axis=0)
    return np.sign(smooth) * np.maximum(np.abs(smooth) - THRESHOLD, 0)


def compiled_model(precision: Any) -> tflgpu.CompiledModel:
    try:
        return tflgpu.compile(model(), tflgpu.Options(precision=precision))
    except tflgpu.ModelError as error:
        sys.exit(f"{error}\nfirst install the package of this operator: pip install ./examples/custom_operator")


def main() -> None:
    image = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
    for precision, tolerance in (("fp32", 1e-6), ("fp16", 2e-3)):
        with compiled_model(precision) as compiled:
            result = compiled.run(image)["result"]
            operators = ", ".join(f"{o.code} on the {o.device}" for o in compiled.report.operators)
            kernels = compiled.report.kernels
        np.testing.assert_allclose(result, expected(image), atol=tolerance)
        print(f"{precision}: {operators}; kernels: {kernels}; as numpy computes it")


if __name__ == "__main__":
    main()
