"""Resizing to the host's order on CPUs, of pixels with channels for whole vectors."""

from __future__ import annotations

import numpy as np
import pytest

import tflgpu
from tests.ops import reference
from tests.ops.case import Net, Tensor, largest
from tests.ops.tolerance import ARITHMETIC, check

# Shape of the image, size of the result, and whether corners are aligned or centers count.
CASES = {
    "larger, of pixels that vectors share": ((2, 5, 7, 21), (13, 11), True, False),
    "smaller": ((1, 12, 9, 33), (5, 4), False, True),
    "of one pixel": ((1, 1, 1, 16), (3, 6), False, False),
}


def network(name: str, activation: bool = False) -> Net:
    shape, size, corners, centers = CASES[name]
    net = Net(pytest.fail, seed=len(name))
    x = net.input(net.normal(shape))
    x = net.op("ABS", [x], np.abs(x.value))
    options = {"align_corners": corners, "half_pixel_centers": centers}
    value = reference.resize_bilinear(x.value, size, corners, centers)
    y: Tensor = net.op("RESIZE_BILINEAR", [x, net.integers(size)], value, options, magnitude=largest(x.value))
    net.output(net.op("NEG", [y], -y.value) if activation else y)
    return net


@pytest.mark.quick(when=lambda name: "larger" in name)
@pytest.mark.parametrize("name", CASES)
def test_whole_pixels_are_right(name: str, device_name: str) -> None:
    case = network(name).case(ARITHMETIC)
    with tflgpu.compile(case.model, tflgpu.Options(device=device_name, precision="fp32", cache="off")) as compiled:
        assert "cpu_resize_pixels" in compiled.source
        (got,) = compiled.run(case.inputs).values()
    check(got, case.expected[0], case.tolerance, "fp32", case.describe)


def test_what_follows_computes_on_slices(device_name: str) -> None:
    case = network("smaller", activation=True).case(ARITHMETIC)
    with tflgpu.compile(case.model, tflgpu.Options(device=device_name, cache="off")) as compiled:
        assert "cpu_resize_pixels" not in compiled.source
