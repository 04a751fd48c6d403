"""Resizing on CPUs, from rows that are blended first."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

import tflgpu
from tests.kernels.networks import convolution
from tests.ops import reference
from tests.ops.case import Net, Tensor, largest
from tests.ops.windows import Window
from tests.support.models import Builder
from tests.support.running import run_checked

# Shape of the image, size of the result, and whether corners are aligned or centers count.
BLENDED = {
    "of twice the size": ((1, 6, 8, 12), (12, 16), False, True),
    "of odd width, a batch": ((2, 5, 7, 6), (9, 15), True, False),
    "of three columns": ((1, 4, 3, 8), (3, 11), False, True),
    "of two columns": ((1, 2, 2, 5), (5, 2), False, False),
    "of one column": ((1, 3, 1, 20), (6, 6), False, False),
    "of half the columns": ((1, 8, 9, 6), (16, 5), False, True),
}
ROW_MAJOR = {
    "of few channels": ((1, 6, 9, 7), (13, 18), False, True),
    "of many channels, a batch": ((2, 5, 7, 21), (13, 11), True, False),
    "of one pixel": ((1, 1, 1, 16), (3, 6), False, False),
}
NARROWER = "of a few columns", ((1, 8, 9, 6), (16, 4), False, True)
CASES = {**BLENDED, **ROW_MAJOR, NARROWER[0]: NARROWER[1]}


def network(name: str, activation: bool = False, read: bool = False) -> Net:
    """read: whether a convolution reads the result."""
    shape, size, corners, centers = CASES[name]
    net = Net(seed=len(name))
    x = net.input(net.normal(shape))
    x = net.op("ABS", [x], np.abs(x.value))
    options = {"align_corners": corners, "half_pixel_centers": centers}
    value = reference.resize_bilinear(x.value, size, corners, centers)
    y: Tensor = net.op("RESIZE_BILINEAR", [x, net.integers(size)], value, options, magnitude=largest(x.value))
    if activation:
        y = net.op("NEG", [y], -y.value)
    net.output(convolution(net, y, 4, Window((1, 1)), "NONE") if read else y)
    return net


@pytest.mark.quick(when=lambda name, precision: name == "of odd width, a batch" and precision == "fp16")
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("name", CASES)
def test_blended_rows_are_right(name: str, precision: Literal["fp32", "fp16"], device_name: str) -> None:
    case = network(name, activation=True, read=name not in ROW_MAJOR).case()
    source = run_checked(case, device=device_name, precision=precision)
    assert ("cpu_resize_blended" in source) == (name != NARROWER[0])


def test_infinity_stays_where_it_is(device_name: str) -> None:
    """A column outside of the image is the one at its border, not a part of none of its neighbour."""
    builder = Builder()
    x = builder.input((1, 1, 5, 4))
    size = builder.ints([1, 10])
    y = builder.add("RESIZE_BILINEAR", [x, size], (1, 1, 10, 4), version=3, half_pixel_centers=True)
    image = np.ones((1, 1, 5, 4), np.float32)
    image[:, :, [1, 3]] = np.inf
    with tflgpu.compile(builder.finish([y]), tflgpu.Options(device=device_name, cache="off")) as compiled:
        assert "cpu_resize_blended" in compiled.source
        (got,) = compiled.run([image]).values()
    assert (got[0, 0, [0, 9]] == 1).all()
