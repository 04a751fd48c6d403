"""Windows of few output channels: the products of all taps with every pixel, and their sums."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.kernels.gpu.ways import Precision, check_divided, take_always
from tests.kernels.networks import convolution, transpose_convolution
from tests.ops.case import Case, Net
from tests.ops.windows import Window
from tests.quick import on_first_runtime
from tests.support.models import Builder
from tests.support.planning import plan_of, taking
from tests.support.targets import H200
from tflgpu.measure.known_devices import known_devices
from tflgpu.target.probes import cost_model_from

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
    """Convolutions with a residual and without, of two images."""
    net = Net(seed=1)
    image = net.op("ABS", [given := net.input(net.normal((2, 8, 11, 9)))], abs(given.value))
    for channels, window in WINDOWS:
        inner = convolution(net, image, channels, window, "NONE")
        net.output(net.op("ADD", [inner, inner], 2 * inner.value, activation="RELU"))
    for channels, window, size in TRANSPOSED:
        net.output(transpose_convolution(net, image, channels, window, size))
    return net.case()


@pytest.mark.quick(when=lambda split_k, device_name: split_k == 4 and on_first_runtime(device_name))
@pytest.mark.parametrize(("split_k", "precision"), [(1, "fp32"), (4, "fp16")])
def test_sums_of_taps_are_those_of_their_windows(
    split_k: int, precision: Precision, device_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_always(monkeypatch, "kn2row")
    count = len(WINDOWS) + len(TRANSPOSED)
    choose = taking(tap_sums=(split_k,))
    check_divided(few_channels_of_windows(), device_name, precision, "gpu/tap_sums", count, choose)


WIDE = (1, 155, 33)


@pytest.mark.parametrize(
    ("image", "kernel", "dilation", "depth", "channels", "way"),
    [
        (WIDE, (7, 7), 5, 342, 5, "tap_sums"),
        (WIDE, (3, 3), 1, 342, 64, None),
        ((1, 7, 4830), (1, 743), 1, 39, 2, "strided"),
        ((1, 112, 112), (3, 3), 1, 3, 32, None),
    ],
)
def test_each_convolution_takes_the_way_that_was_fastest(
    image: tuple[int, int, int], kernel: tuple[int, int], dilation: int, depth: int, channels: int, way: str | None
) -> None:
    """Each shape was measured in half; the costs are those of an H200."""
    builder = Builder()
    x = builder.add("ABS", [builder.input((*image, depth))], (*image, depth))
    dilations = {"dilation_h_factor": dilation, "dilation_w_factor": dilation}
    y = builder.convolution(x, channels, weights=np.zeros((channels, *kernel, depth)), **dilations)
    costs = cost_model_from(known_devices()[0].probes)
    plan = plan_of(builder.finish([y]), replace(H200, executor="launch", cost_model=costs))
    divided = {k.node.kind for k in plan.kernels} & {"tap_sums", "strided"}
    assert divided == ({way} if way else set())


def test_what_a_device_has_no_room_for_stays_whole() -> None:
    """The products of 49 taps by five channels, of 5,115 pixels, are 5 MB in float."""
    builder = Builder()
    data = builder.finish([builder.convolution(builder.input((*WIDE, 342)), 5, 7)])
    for megabytes, room in ((48, True), (32, False)):
        limits = replace(H200.limits, allocation_bytes=megabytes << 20)
        plan = plan_of(data, replace(H200, storage="float", limits=limits))
        assert any(k.node.kind == "tap_sums" for k in plan.kernels) == room
