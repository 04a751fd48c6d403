"""Depthwise convolutions on CPUs of images of one column, and of windows that are too large to unroll."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.networks import depthwise
from tests.ops.case import Net
from tests.ops.windows import Window
from tests.support.running import run_checked

CASES = {
    "one column": ((2, 71, 1, 9), Window((31, 1), padding="SAME")),
    "one column, with steps": ((1, 43, 1, 6), Window((5, 1), (3, 1), dilation=(2, 1))),
    "fewer pixels than taps": ((3, 6, 1, 5), Window((11, 1), padding="SAME")),
    "one row": ((2, 1, 45, 7), Window((1, 29), padding="SAME")),
    "a large window": ((1, 17, 18, 6), Window((7, 6), (2, 1), padding="SAME")),
    "one column of the result only": ((1, 14, 5, 6), Window((3, 5))),
}


@pytest.mark.quick(when=lambda name, precision: name == "one column" and precision == "fp32")
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("name", CASES)
def test_depthwise_convolutions_are_right(name: str, precision: str, device_name: str) -> None:
    shape, window = CASES[name]
    net = Net(seed=shape[1])
    x = net.input(net.normal(shape))
    net.output(depthwise(net, net.op("ABS", [x], np.abs(x.value)), window, "RELU6"))
    assert "depthwise_rows" in run_checked(net.case(), device=device_name, precision=precision)
