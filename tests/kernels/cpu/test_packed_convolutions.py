"""Convolutions on CPUs of images that are packed for blocks of sums: windows, groups, parts of the depth."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from tests.kernels.networks import convolution
from tests.ops.case import Net
from tests.ops.windows import Window
from tests.support.corrections import pack_always
from tests.support.limited_devices import Simulation, limited
from tests.support.running import run_checked

SAME = Window((3, 3), padding="SAME")
# Shape of the image, output channels, window, groups.
CASES = {
    "padding, an incomplete run, rows that end in a run": ((1, 9, 7, 32), 48, SAME, 1),
    "parts of the depth, of several blocks of channels": ((1, 5, 13, 134), 70, SAME, 1),
    "images, strides, and channels that fill no slice": ((3, 7, 9, 30), 46, Window((3, 2), (2, 3), padding="SAME"), 1),
    "dilation past the image": ((1, 4, 5, 24), 32, Window((3, 3), dilation=(2, 4), padding="SAME"), 1),
    "one axis, groups, a long window": ((1, 1, 40, 64), 64, Window((1, 20)), 2),
    "one axis, upright": ((1, 40, 1, 64), 32, Window((7, 1), (2, 1), padding="SAME"), 1),
    "one pixel": ((2, 3, 3, 32), 32, Window((3, 3)), 1),
    "pointwise": ((1, 6, 11, 160), 70, Window((1, 1)), 1),
    "pointwise with a stride": ((1, 6, 11, 160), 64, Window((1, 1), (2, 2)), 1),
}


def network(shape: tuple[int, ...], channels: int, window: Window, groups: int) -> Net:
    """A convolution with an activation, and a residual that is added after it."""
    net = Net(seed=channels)
    x = net.input(net.normal(shape))
    y = convolution(net, net.op("ABS", [x], np.abs(x.value)), channels, window, "RELU6", groups=groups)
    other = net.input(net.normal(y.shape))
    net.output(net.op("ADD", [y, other], y.value + other.value, activation="RELU"))
    return net


@pytest.fixture(autouse=True)
def packed_if_possible(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also what is so small that quads are faster."""
    pack_always(monkeypatch)


@pytest.mark.quick(when=lambda name, width: width == 8 and ("parts" in name or "groups" in name or "images" in name))
@pytest.mark.parametrize(
    ("name", "precision", "width"),
    [
        (name, *registers)
        for name, registers in product(CASES, (("fp32", 8), ("fp32", 16), ("fp16", 8), ("fp16", 16)))
        if (name, *registers) != ("pointwise", "fp32", 16)  # quads are as fast
    ],
)
def test_packed_convolutions_are_right(name: str, device_name: str, precision: str, width: int) -> None:
    """Blocks of one vector and of two, which wide registers hold."""
    with limited(device_name, Simulation({"vector_width": width})):
        assert "packed" in run_checked(network(*CASES[name]).case(), device=device_name, precision=precision)
