"""Depthwise convolutions of few channels as dense ones, with the products of matrix units emulated."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tflgpu
from tests.kernels.networks import depthwise
from tests.ops import windows
from tests.ops.case import Case, Net
from tests.ops.tolerance import ARITHMETIC
from tests.ops.windows import Window
from tests.runtime.persistent.test_persistent import H200
from tests.support import emulated_matrix_units as emulated
from tests.support.corrections import NEVER, correct
from tflgpu.compiler import plan_model
from tflgpu.measure.known_devices import known_devices
from tflgpu.model.writer import ModelBuilder
from tflgpu.target import cost_model_from


def few_channels() -> Case:
    """With a multiplier and a residual, and of a single channel in two images."""
    net = Net(pytest.fail, seed=1)  # it draws nothing
    image = net.op("ABS", [given := net.input(net.normal((1, 3, 40, 3)))], abs(given.value))
    weights, bias = net.constant(net.normal((1, 1, 11, 9), 0.3)), net.constant(net.normal((9,)))
    value = windows.depthwise_conv_2d(image.value, weights.value, bias.value, Window((1, 11)))
    options = {"padding": "VALID", "stride_h": 1, "stride_w": 1, "depth_multiplier": 3}
    options |= {"dilation_h_factor": 1, "dilation_w_factor": 1}
    x = net.op("DEPTHWISE_CONV_2D", [image, weights, bias], value, options)
    net.output(net.op("ADD", [x, x], 2 * x.value, activation="RELU"))
    image = net.op("ABS", [given := net.input(net.normal((2, 37, 2, 1)))], abs(given.value))
    net.output(depthwise(net, image, Window((28, 1), padding="SAME"), "RELU6"))
    return net.case(ARITHMETIC)


@pytest.mark.usefixtures("emulation")
def test_a_result_is_that_of_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    correct(monkeypatch, {"gpu/depthwise_window of one slice": NEVER})
    case = few_channels()
    _, plan = plan_model(case.model, tflgpu.Options(precision="fp16"), emulated.TARGET)
    templates = [planned.kernel.template for planned in plan.kernels]
    assert sum(template.startswith("mma/gemm/") for template in templates) == 2
    for got, expected in zip(emulated.run(plan, case.inputs), case.expected, strict=True):
        np.testing.assert_allclose(got, expected, rtol=0, atol=2e-3 * np.abs(expected).max())


@pytest.mark.parametrize(("channels", "taps", "dense"), [(3, 934, True), (16, 934, False)])
def test_windows_of_many_taps_and_few_channels_are_dense(channels: int, taps: int, dense: bool) -> None:
    builder = ModelBuilder()
    image = builder.tensor((1, 11, 4546, channels))
    builder.op("ABS", [builder.input((1, 11, 4546, channels))], [image])
    weights = builder.constant(np.ones((1, 1, taps, 3 * channels), np.float32))
    result = builder.tensor((1, 11, 4547 - taps, 3 * channels))
    options = {"padding": "VALID", "stride_h": 1, "stride_w": 1, "depth_multiplier": 3}
    options |= {"dilation_h_factor": 1, "dilation_w_factor": 1}
    bias = builder.constant(np.zeros(3 * channels, np.float32))
    builder.op("DEPTHWISE_CONV_2D", [image, weights, bias], [result], options)
    costs = cost_model_from(known_devices()[0].probes)
    target = replace(H200, executor="launch", cost_model=costs)
    _, plan = plan_model(builder.finish([result]), tflgpu.Options(), target)
    assert ("depthwise" in [planned.node.kind for planned in plan.kernels]) != dense
