"""In half precision, 8-bit quantized convolutions sum whole numbers: nothing but the results is rounded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

import tflgpu
from tests.ops.windows import Window, conv_2d, depthwise_conv_2d
from tests.support import litert
from tests.support.models import Builder
from tests.support.planning import plan_of
from tests.support.targets import GPU
from tflgpu.measure.trace import trace
from tflgpu.model.tensor_info import Quantization
from tflgpu.options import Execution, Options
from tflgpu.plan import Plan

Doubles = NDArray[np.float64]

SHAPE, CHANNELS = (1, 5, 6, 19), 7
SAME = {"padding": "SAME", "stride_w": 1, "stride_h": 1}
IN_HALF = replace(GPU, storage="half")
WINDOW = Window((3, 3), padding="SAME")
IMAGE, BETWEEN, RESULT = Quantization([0.0173], [3]), Quantization([0.031], [-11]), Quantization([0.0007], [5])
SCALES = np.float32([0.0031, 0.047, 0.0009, 0.011, 0.0052, 0.00013, 0.029])
RNG = np.random.default_rng(7)
WEIGHTS = RNG.integers(-127, 128, (CHANNELS, 3, 3, SHAPE[-1]), np.int8)
BIAS = RNG.integers(-9999, 10000, CHANNELS, np.int32)
TAPS = RNG.integers(-127, 128, (1, 3, 3, CHANNELS), np.int8)


def scale(quantization: Quantization) -> np.float64:
    """The scale in the type that the file has."""
    return np.float64(np.float32(quantization.scale[0]))


def rounded(x: Doubles, quantization: Quantization) -> Doubles:
    """The integers that stand for ``x``."""
    q = np.trunc(x / scale(quantization) + np.copysign(0.5, x)) + quantization.zero_point[0]
    return np.clip(q, -128, 127)


def two_convolutions(also: bool = False) -> bytes:
    """A convolution and a depthwise one behind it. also: the values between them are a result, too."""
    builder = Builder()
    x = builder.input(SHAPE, "int8", quantization=IMAGE)
    weights = builder.constant(WEIGHTS, quantization=Quantization(SCALES, [0] * CHANNELS, 0))
    bias = builder.constant(BIAS, quantization=Quantization(SCALES * np.float32(IMAGE.scale[0]), [0] * CHANNELS, 0))
    y = builder.add(
        "CONV_2D", [x, weights, bias], (*SHAPE[:3], CHANNELS), "int8", name="between", quantization=BETWEEN, **SAME
    )
    taps = builder.constant(TAPS, quantization=Quantization(SCALES, [0] * CHANNELS, 3))
    z = builder.add(
        "DEPTHWISE_CONV_2D",
        [y, taps],
        (*SHAPE[:3], CHANNELS),
        "int8",
        quantization=RESULT,
        **({**SAME, "depth_multiplier": 1}),
    )
    return builder.finish([z, y] if also else [z])


def image() -> NDArray[np.int8]:
    return np.random.default_rng(1).integers(-128, 128, SHAPE, np.int8)


def expected() -> tuple[Doubles, Doubles]:
    """The integers between the convolutions and behind them."""
    x, scales = scale(IMAGE) * (image() - 3.0), SCALES.astype(np.float64)
    bias = BIAS * np.float64(np.float32(IMAGE.scale[0])) * scales
    between = rounded(conv_2d(x, WEIGHTS * scales[:, None, None, None], bias, WINDOW), BETWEEN)
    values = scale(BETWEEN) * (between - BETWEEN.zero_point[0])
    return between, rounded(depthwise_conv_2d(values, TAPS * scales, np.zeros(CHANNELS), WINDOW), RESULT)


@pytest.mark.parametrize("kernels", ["cpu", "gpu"])
def test_half_precision_gives_the_integers_of_double(kernels: str, device_name: str) -> None:
    options = Options(precision="fp16", execution=Execution(kernels=kernels), device=device_name)
    (result,) = tflgpu.compile(two_convolutions(), options).run(image()).values()
    np.testing.assert_array_equal(result, expected()[1])
    _, between = tflgpu.compile(two_convolutions(also=True), options).run(image()).values()
    np.testing.assert_array_equal(between, expected()[0])


def test_dynamic_range_weights_are_not_rounded(device_name: str) -> None:
    builder = Builder()
    x = builder.input((4, 300))
    q = RNG.integers(-127, 128, (5, 300), np.int8)
    weights = builder.constant(q, quantization=Quantization([0.0371], [0]))
    y = builder.add("FULLY_CONNECTED", [x, weights], (4, 5))
    given = RNG.standard_normal((4, 300)).astype(np.float32)
    (got,) = tflgpu.compile(builder.finish([y]), Options(precision="fp16", device=device_name)).run(given).values()
    exact = given.astype(np.float64) @ (q * scale(Quantization([0.0371], [0]))).T
    np.testing.assert_allclose(got, exact, atol=1e-5 * np.abs(exact).max())


def factors(plan: Plan) -> list[float]:
    return [t.factor for t in plan.graph.tensors.values() if t.factor != 1.0]


def test_only_what_convolutions_alone_read_is_stored_without_its_scale() -> None:
    assert len(factors(plan_of(two_convolutions(), IN_HALF))) == 2
    assert len(factors(plan_of(two_convolutions(also=True), IN_HALF))) == 1  # of the image
    assert factors(plan_of(two_convolutions(), GPU)) == []


def test_weights_that_half_cannot_hold_are_stored_in_float() -> None:
    scales = np.float32([1e-30, 0.0, 0.1, 1e30])
    q = np.arange(-6, 6, dtype=np.int8).reshape(4, 3)
    builder = Builder()
    weights = builder.constant(q, quantization=Quantization(scales, [0] * 4, 0))
    y = builder.add("FULLY_CONNECTED", [builder.input((1, 3)), weights], (1, 4))
    plan = plan_of(builder.finish([y]), IN_HALF)
    (_, stored) = plan.kernels[-1].node.inputs
    np.testing.assert_array_equal(plan.graph.constant(stored), q * scales[:, None])
    assert plan.graph[stored].precise


def test_results_of_kernels_are_read_with_their_scale(device_name: str) -> None:
    results = trace(two_convolutions(), [image()], Options(precision="fp16", device=device_name))
    (between,) = (r.value for r in results if r.tensor == "between")
    np.testing.assert_allclose(between, scale(BETWEEN) * (expected()[0] - BETWEEN.zero_point[0]), rtol=1e-6)


@pytest.mark.parametrize("kernels", ["cpu", "gpu"])
def test_requantizing_rounds_as_litert(kernels: str, device_name: str) -> None:
    """Products of 16 bits may be so near to a half that the multiplier of 31 bits of LiteRT decides on their side."""
    q = np.arange(-32768, 32768, dtype=np.int16)
    source, target = np.float32(3.0517578e-05), np.float32(3.1072604e-05)
    builder = Builder()
    x = builder.input(q.shape, "int16", quantization=Quantization([source], [0]))
    y = builder.add("QUANTIZE", [x], q.shape, "int16", quantization=Quantization([target], [0]))
    model = builder.finish([y])
    options = Options(device=device_name, execution=Execution(kernels=kernels))
    (got,), (expected,) = tflgpu.compile(model, options).run(q).values(), litert.run(model, q).values()
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("kernels", ["cpu", "gpu"])
@pytest.mark.parametrize("ratio", [2.0, 1000.0])
def test_halves_are_rounded_away_from_zero(kernels: str, ratio: float, device_name: str) -> None:
    """For every number of 8 bits, with a coarser grid, and with a finer one that clamps."""
    q = np.arange(-128, 128, dtype=np.int8)
    builder = Builder()
    x = builder.input(q.shape, "int8", quantization=Quantization([0.0173], [0]))
    one = builder.constant(np.int8([2]), quantization=Quantization([0.5], [0]))
    y = builder.add("MUL", [x, one], q.shape, "int8", quantization=Quantization([0.0173 * ratio], [-3]))
    z = builder.add("MUL", [x, one], q.shape, "int8", quantization=Quantization([0.0173 / ratio], [7]))
    options = Options(precision="fp32", device=device_name, execution=Execution(kernels=kernels))
    got = [*tflgpu.compile(builder.finish([y, z]), options).run(q).values()]
    values = q.astype(np.float64)
    for result, wanted, zero in zip(got, (values / ratio, values * ratio), (-3, 7), strict=True):
        away = np.trunc(wanted + np.copysign(0.5, wanted))
        np.testing.assert_array_equal(result, np.clip(away + zero, -128, 127))
