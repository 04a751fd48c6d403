"""A bias of integers whose written scale is not that of the sums to which it is added."""

from __future__ import annotations

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from numpy.typing import NDArray

import tflgpu
from tests.support.models import Builder
from tflgpu.model.tensor_info import Quantization

INPUT, OUTPUT = 0.03, 0.1


def grid(*scale: float, zero: int = 0) -> Quantization:
    return Quantization(scale, (zero,) * len(scale))


def model(code: str, dtype: str, written: float | None) -> bytes:
    """A layer of six channels. written: the scale of the bias in the file, if it has one."""
    random, builder = np.random.default_rng(0), Builder()
    shape, axis = {
        "CONV_2D": ((6, 3, 3, 8), 0),
        "DEPTHWISE_CONV_2D": ((1, 3, 3, 6), 3),
        "FULLY_CONNECTED": ((6, 8), 0),
        "TRANSPOSE_CONV": ((6, 3, 3, 8), 0),
    }[code]
    depth = 6 if code == "DEPTHWISE_CONV_2D" else 8
    image = (5, 8) if code == "FULLY_CONNECTED" else (1, 6, 6, depth)
    zero = 5 if dtype == "int8" else 0
    step, out = (1.0, OUTPUT) if dtype == "int8" else (1 / 256, OUTPUT / 256)
    x = builder.input(image, dtype, quantization=grid(INPUT * step, zero=zero))
    scales = Quantization(random.uniform(0.004, 0.02, 6).astype(np.float32).tolist(), (0,) * 6, axis)
    weights = builder.constant(random.integers(-127, 128, shape).astype(np.int8), quantization=scales)
    integers = random.integers(-9000, 9000, 6) * (1 if dtype == "int8" else 256)
    bias = builder.constant(
        integers.astype(np.int32 if dtype == "int8" else np.int64), quantization=grid(written) if written else None
    )
    result = (*image[:-1], 6)
    y = builder.tensor(result, dtype, quantization=grid(out, zero=-3 if dtype == "int8" else 0))
    options = {"padding": "SAME", "stride_h": 1, "stride_w": 1} if len(image) == 4 else {}
    inputs = [x, weights, bias]
    if code == "TRANSPOSE_CONV":
        inputs = [builder.constant(np.array(result, np.int32)), weights, x, bias]
    builder.op(code, inputs, [y], {**options, **({"depth_multiplier": 1} if code == "DEPTHWISE_CONV_2D" else {})})
    return builder.finish([y])


@pytest.mark.parametrize("code", ["CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV"])
@pytest.mark.parametrize("dtype", ["int8", "int16"])
@pytest.mark.parametrize("written", [None, 1.0])
def test_a_scale_that_is_right_nowhere_means_nothing(
    code: str, dtype: str, written: float | None, device_name: str
) -> None:
    data, limits = model(code, dtype, written), np.iinfo(dtype)
    judge = Interpreter(model_content=data, experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
    judge.allocate_tensors()
    (info,) = judge.get_input_details()
    x = np.random.default_rng(1).integers(limits.min, limits.max, info["shape"], dtype, endpoint=True)
    judge.set_tensor(info["index"], x)
    judge.invoke()
    expected = judge.get_tensor(judge.get_output_details()[0]["index"]).astype(np.int64)
    with tflgpu.compile(data, tflgpu.Options(device=device_name, cache="off", fallback="forbid")) as compiled:
        (found,) = compiled.run([x]).values()
    assert np.abs(found - expected).max() <= 1


def test_a_scale_that_is_right_in_one_of_two_layers_is_believed(device_name: str) -> None:
    """Two layers share weights and bias; the second has an input of another scale."""
    random, builder = np.random.default_rng(0), Builder()
    integers, bias = random.integers(-127, 128, (6, 8)).astype(np.int8), random.integers(-60000, 60000, 6)
    weights = builder.constant(integers, quantization=grid(0.02))
    shared = builder.constant(bias.astype(np.int32), quantization=grid(0.02 * INPUT))
    scales, outputs = (INPUT, 1.25 * INPUT), []
    for scale in scales:
        x = builder.input((4, 8), "int8", quantization=grid(scale))
        outputs.append(builder.tensor((4, 6), "int8", quantization=grid(0.5)))
        builder.op("FULLY_CONNECTED", [x, weights, shared], [outputs[-1]])
    x = random.integers(-128, 128, (2, 4, 8)).astype(np.int8)
    options = tflgpu.Options(device=device_name, cache="off", fallback="forbid")
    with tflgpu.compile(builder.finish(outputs), options) as compiled:
        found = compiled.run([*x]).values()
    for scale, rows, result in zip(scales, x, found, strict=True):
        real = scale * rows.astype(np.float64) @ (0.02 * integers.T) + 0.02 * INPUT * bias
        steps: NDArray[np.float64] = np.clip(real / 0.5, -128, 127)
        assert np.abs(result - steps).max() <= 0.51
