"""Windows of few output channels: the products of all taps with every pixel, and their sums."""

from __future__ import annotations

from typing import Literal

import pytest

import tflgpu
from tests.kernels.gpu.ways import take_always
from tests.kernels.networks import convolution, transpose_convolution
from tests.ops.case import Case, Net
from tests.ops.tolerance import ARITHMETIC, check
from tests.ops.windows import Window
from tests.quick import on_first_runtime

WINDOWS = (
    (1, Window((5, 7), padding="SAME")),
    (3, Window((3, 3), (1, 1), (2, 3))),
    (4, Window((4, 3), (2, 1), padding="SAME")),
    (6, Window((1, 9), (1, 2))),
)
TRANSPOSED = (
    (1, Window((4, 4), (3, 3), padding="SAME"), (23, 31)),
    (5, Window((8, 3), (2, 1), padding="SAME"), (16, 11)),
    (8, Window((4, 9), (3, 4)), (25, 49)),
)


def few_channels_of_windows() -> Case:
    """With a residual and without, of two images."""
    net = Net(pytest.fail, seed=1)
    image = net.op("ABS", [given := net.input(net.normal((2, 8, 11, 9)))], abs(given.value))
    for channels, window in WINDOWS:
        inner = convolution(net, image, channels, window, "NONE")
        net.output(net.op("ADD", [inner, inner], 2 * inner.value, activation="RELU"))
    for channels, window, size in TRANSPOSED:
        net.output(transpose_convolution(net, image, channels, window, size))
    return net.case(ARITHMETIC)


@pytest.mark.quick(when=lambda split_k, device_name: split_k == 4 and on_first_runtime(device_name))
@pytest.mark.parametrize(("split_k", "precision"), [(1, "fp32"), (4, "fp16")])
def test_sums_of_taps_are_those_of_their_windows(
    split_k: int, precision: Literal["fp32", "fp16"], device_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_always(monkeypatch, "TAPS")
    monkeypatch.setattr("tflgpu.kernels.divided.tap_sums_kernel.SPLIT_K", (split_k,))
    monkeypatch.setattr("tflgpu.kernels.divided.tap_sums_kernel.can_split", lambda *_: True)
    case = few_channels_of_windows()
    options = tflgpu.Options(device=device_name, kernels="gpu", precision=precision, fallback="forbid", cache="off")
    with tflgpu.compile(case.model, options) as model:
        kernels = [k.kernel for k in model.profile(case.inputs, 1).kernels]
        assert sum(kernel.startswith("gpu_tap_sums") for kernel in kernels) == len(WINDOWS) + len(TRANSPOSED)
        for got, expected in zip(model.run(case.inputs).values(), case.expected, strict=True):
            check(got, expected, case.tolerance, precision, case.describe)
