"""Long windows of few output channels, whose neighbouring pixels become channels of one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.kernels.gpu.ways import Precision, check_divided, take_always
from tests.kernels.networks import convolution
from tests.ops.case import Case, Net
from tests.ops.windows import Window
from tests.quick import on_first_runtime
from tests.support.models import Builder
from tests.support.planning import kinds, plan_of
from tests.support.targets import H200
from tflgpu.kernels.gpu import few_channels


def long_windows() -> Case:
    """Along both axes, with a residual and without, of batches whose rows are and are not whole pixels."""
    net = Net(seed=1)
    image = net.op("ABS", [given := net.input(net.normal((2, 12, 33, 6)))], abs(given.value))
    for channels, kernel, padding in ((1, (1, 20), "SAME"), (3, (2, 17), "VALID"), (5, (11, 1), "SAME")):
        inner = convolution(net, image, channels, Window(kernel, padding=padding), "NONE")
        net.output(net.op("ADD", [inner, inner], 2 * inner.value, activation="RELU"))
    alone = net.op("ABS", [given := net.input(net.normal((1, 41, 3, 3)))], abs(given.value))
    net.output(convolution(net, alone, 2, Window((19, 2), (1, 2), padding="SAME"), "RELU"))
    return net.case()


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    take_always(monkeypatch, "width blocking")


@pytest.mark.usefixtures("always")
@pytest.mark.quick(when=lambda pixels, device_name: pixels == 3 and on_first_runtime(device_name))
@pytest.mark.parametrize(("pixels", "precision"), [(2, "fp32"), (3, "fp16"), (8, "fp32")])
def test_pixels_get_their_places_again(
    pixels: int, precision: Precision, device_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(few_channels, "PIXELS", (pixels,))
    whole = 12 % pixels == 0  # the rows of two images are pixels, or else they stay rows
    check_divided(long_windows(), device_name, precision, "movement/strided", 3 + whole)


@pytest.mark.parametrize(
    ("kernel", "depth", "channels", "divided"),
    [((1, 743), 39, 2, True), ((87, 1), 22, 1, True), ((3, 3), 39, 2, False), ((1, 743), 39, 64, False)],
)
def test_few_channels_of_long_windows_take_two_kernels(
    kernel: tuple[int, int], depth: int, channels: int, divided: bool
) -> None:
    """Where the products saved are worth a second launch."""
    builder = Builder()
    x = builder.input((1, 7, 4830, depth) if kernel[1] > 1 else (1, 1753, 11, depth))
    y = builder.convolution(x, channels, weights=np.zeros((channels, *kernel, depth)))
    plan = plan_of(builder.finish([y]), H200)
    assert any(k.node.kind in ("strided", "tap_sums") for k in plan.kernels) == divided


def test_a_way_whose_kernel_has_no_costs_is_left_alone() -> None:
    """Two rows of pixels as channels would go to the kernel that reads rows of a large image in local memory."""
    builder = Builder()
    x = builder.add("ABS", [builder.input((1, 392, 392, 3))], (1, 392, 392, 3))
    y = builder.convolution(x, 8, 9, padding="VALID")
    plan = plan_of(builder.finish([y]), replace(H200, executor="launch"))
    assert kinds(plan).count("convolution") == 1
