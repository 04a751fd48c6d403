"""Windows of few input channels, all that they see being the channels of one pixel."""

from __future__ import annotations

import numpy as np
import pytest

import tflgpu
from tests.kernels.gpu.ways import Precision, check_divided, take_always
from tests.kernels.networks import convolution
from tests.ops.case import Case, Net
from tests.ops.tolerance import ARITHMETIC
from tests.ops.windows import Window
from tests.quick import on_first_runtime

WINDOWS = (
    Window((3, 7), padding="SAME"),
    Window((2, 2), (2, 1)),
    Window((5, 2), (1, 2), (2, 3), "SAME"),
)


def few_channels_of_images() -> Case:
    """Of images that are stored, and of models' inputs; with a residual and without."""
    net = Net(pytest.fail, seed=1)
    for channels, window in zip((1, 2, 3), WINDOWS, strict=True):
        image = net.op("ABS", [given := net.input(net.normal((2, 9, 12, channels)))], abs(given.value))
        inner = convolution(net, image, 21, window, "NONE")
        net.output(net.op("ADD", [inner, inner], 2 * inner.value, activation="RELU"))
        net.output(convolution(net, net.input(net.normal((1, 8, 11, channels))), 6, window, "RELU"))
    return net.case(ARITHMETIC)


@pytest.mark.quick(when=lambda precision, device_name: precision == "fp16" and on_first_runtime(device_name))
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_patches_give_what_windows_do(precision: Precision, device_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    take_always(monkeypatch, "PATCHES")
    check_divided(few_channels_of_images(), device_name, precision, "gpu_patches", 2 * len(WINDOWS))


def test_what_is_infinite_stays_in_its_windows(device_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Channels that fill up a vec4 are no copies of others: infinity times their weights of zero would be NaN."""
    take_always(monkeypatch, "PATCHES")
    net = Net(pytest.fail, seed=1)
    image = net.normal((1, 4, 5, 1))
    image[0, 1, 2, 0] = np.inf
    given = net.input(image)
    net.output(convolution(net, given, 5, Window((3, 3), padding="SAME"), "NONE"))
    case = net.case(ARITHMETIC)
    options = tflgpu.Options(device=device_name, kernels="gpu", fallback="forbid", cache="off")
    with tflgpu.compile(case.model, options) as model:
        (got,) = model.run(case.inputs).values()
    assert np.array_equal(np.isfinite(got), np.isfinite(case.expected[0]))
    assert not np.isnan(got).any()
