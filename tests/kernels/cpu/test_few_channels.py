"""Convolutions of images of up to four channels on CPUs, which are read as the host gives them."""

from __future__ import annotations

import pytest

from tests.ops import windows
from tests.ops.case import Net
from tests.ops.windows import Window
from tests.support.running import run_checked

# Groups, output channels, and the window: rows of one pixel and of several, of which the latter are read at once.
CASES = {
    "a channel each, rows of two": (3, 3, Window((3, 2), (2, 2))),
    "a channel each, padded": (2, 2, Window((1, 2), padding="SAME")),
    "several outputs of a group": (3, 12, Window((1, 3), padding="SAME")),
    "two channels of a group": (2, 6, Window((2, 2))),
    "rows of one": (4, 8, Window((3, 1))),
    "far taps": (4, 8, Window((2, 2), dilation=(1, 2))),
}


@pytest.mark.parametrize("name", CASES)
def test_groups_of_few_channels(name: str) -> None:
    groups, out, window = CASES[name]
    depth = 2 if name == "two channels of a group" else 1
    net = Net(seed=out)
    x = net.input(net.normal((2, 5, 9, groups * depth)))
    weights, bias = net.constant(net.normal((out, *window.kernel, depth))), net.constant(net.normal((out,)))
    options = {
        "padding": window.padding,
        **dict(zip(("stride_h", "stride_w"), window.stride, strict=True)),
        **dict(zip(("dilation_h_factor", "dilation_w_factor"), window.dilation, strict=True)),
    }
    value = windows.conv_2d(x.value, weights.value, bias.value, window)
    net.output(net.op("CONV_2D", [x, weights, bias], value, options, activation="NONE", terms=6))
    run_checked(net.case(), device="Intel", kernels="cpu")
