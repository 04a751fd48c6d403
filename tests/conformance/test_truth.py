"""Double precision against LiteRT's plain kernels: 8-bit weights here, the floats that they stand for there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.conformance.cases import Case
from tests.conformance.truth import errors
from tests.support import in_double, litert
from tests.support.models import Builder
from tflgpu.model.tensor_info import Quantization

IMAGE, RNG = (1, 7, 6, 5), np.random.default_rng(5)
WEIGHTS, BIAS = RNG.integers(-127, 128, (4, 3, 2, 5), np.int8), RNG.standard_normal(4).astype(np.float32)
SCALES = np.float32([0.01, 0.07, 0.002, 0.3])
WINDOW = {"stride_h": 2, "stride_w": 1, "dilation_h_factor": 1, "dilation_w_factor": 2}
SIZES = {"SAME": (4, 6), "VALID": (3, 4)}


def convolution(padding: str, activation: str, *, quantized: bool) -> bytes:
    builder = Builder()
    floats = WEIGHTS * SCALES[:, None, None, None]
    grid = Quantization(SCALES, [0] * 4, 0) if quantized else None
    weights = builder.constant(WEIGHTS if quantized else floats, quantization=grid)
    options = {**WINDOW, "padding": padding, "fused_activation_function": activation}
    y = builder.add(
        "CONV_2D", [builder.input(IMAGE), weights, builder.constant(BIAS)], (1, *SIZES[padding], 4), **options
    )
    return builder.finish([y])


def case(model: bytes, image: NDArray[np.float32], expected: NDArray[np.float32], *operators: str) -> Case:
    return Case("op.zip", "op_000", "dynamic-range", {}, operators, model, (image,), (expected,), (None,))


@pytest.mark.parametrize(("padding", "activation"), [("SAME", "RELU6"), ("VALID", "RELU_N1_TO_1"), ("VALID", "NONE")])
def test_litert_computes_the_same_of_floats(padding: str, activation: str) -> None:
    image = RNG.standard_normal(IMAGE).astype(np.float32)
    (floats,) = litert.run(convolution(padding, activation, quantized=False), image).values()
    quantized = convolution(padding, activation, quantized=True)
    found = errors(case(quantized, image, floats + np.float32(0.5), "CONV_2D"), [floats])
    assert found is not None
    assert found.got < 1e-4
    assert found.recorded == pytest.approx(0.5, abs=1e-4)


def test_of_other_models_nothing_is_known() -> None:
    image = np.zeros(IMAGE, np.float32)
    assert errors(case(convolution("VALID", "NONE", quantized=True), image, image, "CONV_2D", "ABS"), [image]) is None


def test_a_whole_model_is_what_litert_computes(shared: Path) -> None:
    model = (shared / "models" / "pretrainedResnet.tflite").read_bytes()
    image = RNG.uniform(0, 255, (1, 32, 32, 3)).astype(np.float32)
    (exact,), (answer,) = in_double.run(model, image), litert.run(model, image).values()
    np.testing.assert_allclose(answer, exact, atol=1e-5)
