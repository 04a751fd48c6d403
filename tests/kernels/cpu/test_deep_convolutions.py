"""Pointwise convolutions of many channels on CPUs: blocks of whole vectors of output channels."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.networks import convolution
from tests.ops.case import Net
from tests.ops.windows import Window
from tests.support.limited_devices import Simulation, limited
from tests.support.planning import plan_of
from tests.support.running import run_checked
from tflgpu.graph.layout import Geometry
from tflgpu.kernels.cpu.convolution_kernels import CONVOLUTION, lines_ahead
from tflgpu.kernels.kernel import Storage
from tflgpu.ops.image.window import POINTWISE
from tflgpu.target import Limits, Target

DEEP, FAR_WEIGHTS = CONVOLUTION.deep, CONVOLUTION.far_weights
ONE = Window((1, 1))
# Shape of the image, and output channels.
CASES = {
    "whole blocks of two vectors": ((1, 4, 7, DEEP), 64),
    "pixels that are left over, of three vectors": ((2, 5, 5, DEEP + 2), 48),
    "one row and a half": ((3, 1, 21, DEEP + 4), 32),
}


def network(shape: tuple[int, ...], channels: int) -> Net:
    """A convolution with an activation, and a residual that is added behind it."""
    net = Net(seed=channels)
    x = net.input(net.normal(shape))
    y = convolution(net, net.op("ABS", [x], np.abs(x.value)), channels, ONE, "RELU6")
    other = net.input(net.normal(y.shape))
    net.output(net.op("ADD", [y, other], y.value + other.value, activation="RELU"))
    return net


@pytest.mark.quick(when=lambda name, width: "left over" in name and width == 16)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("width", [8, 16])
def test_deep_convolutions_are_right(name: str, width: int, device_name: str) -> None:
    with limited(device_name, Simulation({"vector_width": width})):
        run_checked(network(*CASES[name]).case(), precision="fp32")


@pytest.mark.parametrize(
    ("shape", "channels", "width", "storage", "expected"),
    [
        ((1, 5, 5, DEEP), 32, 16, "float", "cpu/convolution"),
        ((1, 5, 5, DEEP), 48, 16, "float", "cpu/convolution"),
        ((1, 5, 5, DEEP), 40, 16, "float", "cpu/convolution_quads"),
        ((1, 5, 5, DEEP - 4), 32, 16, "float", "cpu/convolution_quads"),
        ((1, 4, 4, DEEP), 32, 16, "float", "cpu/convolution_quads"),
        ((1, 5, 5, DEEP), 32, 8, "float", "cpu/convolution_quads"),
        ((1, 16, 14, DEEP), 64, 8, "float", "cpu/convolution_packed"),
        ((1, 7, 7, 368), 368, 16, "half", "cpu/convolution_packed"),
    ],
)
def test_other_convolutions_compute_quads_or_pack_the_image(
    shape: tuple[int, ...], channels: int, width: int, storage: str, expected: str
) -> None:
    """Where lanes, registers or the time to transpose would be wasted."""
    target = Target(family="cpu", compute_units=2, storage=storage, limits=Limits(vector_width=width))
    kernels = plan_of(network(shape, channels).case().model, target).kernels
    assert [k.kernel.template for k in kernels if k.kernel.macs] == [expected]


@pytest.mark.parametrize(
    ("channels", "linear", "pixel_blocks", "out_blocks", "expected"),
    [
        (FAR_WEIGHTS, False, 5, 3, 2),
        (FAR_WEIGHTS, False, 100, 3, 1),
        (FAR_WEIGHTS, False, 5, 1, 0),
        (FAR_WEIGHTS - 4, False, 5, 3, 0),
        (FAR_WEIGHTS, True, 5, 3, 0),
    ],
)
def test_blocks_of_pixels_share_the_fetching_of_weights(
    channels: int, linear: bool, pixel_blocks: int, out_blocks: int, expected: int
) -> None:
    """Eight lines of each slice, if there is another block of channels, and if weights are far."""
    src = Storage(Geometry((1, 14, 14, channels)), "float", linear)
    assert lines_ahead(POINTWISE, src, 2, pixel_blocks, out_blocks) == expected
