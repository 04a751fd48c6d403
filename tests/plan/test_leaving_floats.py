"""Floats that leave a model in half precision are the floats that were computed, however large, by whatever way."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tflgpu
from tests.ops import reference
from tests.ops.case import Net, Tensor

SHAPE = (1, 6, 5, 6)  # not the same bytes in the host's order and on the device
LARGE = 4.5e5  # half precision ends at 65504


def sums(net: Net, x: Tensor) -> Tensor:
    """Large numbers that a kernel computes, and stores."""
    weights = net.constant(np.clip(net.normal((6, 1, 1, 6), LARGE), -60000, 60000))
    options = {"padding": "SAME", "stride_h": 1, "stride_w": 1}
    value = x.value @ weights.value[:, 0, 0].T
    return net.op("CONV_2D", [x, weights, net.constant(np.zeros(6, np.float32))], value, options)


def softmax(net: Net, x: Tensor) -> Tensor:
    """A reader beside the model's caller."""
    return net.op("SOFTMAX", [x], reference.softmax(x.value), {"beta": 1.0})


def read_by_a_kernel(net: Net, x: Tensor) -> list[Tensor]:
    y = sums(net, x)
    return [y, softmax(net, y)]


def transposed(net: Net, x: Tensor) -> list[Tensor]:
    y = sums(net, x)
    return [net.op("TRANSPOSE", [y, net.integers([0, 3, 1, 2])], y.value.transpose(0, 3, 1, 2)), softmax(net, y)]


def concatenated(net: Net, x: Tensor) -> list[Tensor]:
    first, second = sums(net, x), sums(net, x)
    value = np.concatenate([first.value, second.value], 1)
    return [net.op("CONCATENATION", [first, second], value, {"axis": 1}), softmax(net, first)]


def reshaped(net: Net, x: Tensor) -> list[Tensor]:
    y = sums(net, x)
    return [net.op("RESHAPE", [y, net.integers([1, 30, 6])], y.value.reshape(1, 30, 6)), softmax(net, y)]


def sliced(net: Net, x: Tensor) -> list[Tensor]:
    y = sums(net, x)
    bounds = map(net.integers, ([0, 1, 0, 2], [1, 4, 5, 4]))
    return [net.op("SLICE", [y, *bounds], y.value[:, 1:5, :, 2:])]


def pooled(net: Net, x: Tensor) -> list[Tensor]:
    y = sums(net, x)
    greatest = y.value[:, :, :4].reshape(1, 3, 2, 2, 2, 6).max((2, 4))
    window = {"filter_height": 2, "filter_width": 2, "stride_h": 2, "stride_w": 2, "padding": "VALID"}
    return [net.op("MAX_POOL_2D", [y], greatest, window)]


def resized(net: Net, x: Tensor) -> list[Tensor]:
    y = sums(net, x)
    return [net.op("RESIZE_BILINEAR", [y, net.integers([12, 10])], reference.resize_bilinear(y.value, (12, 10)))]


def masked(net: Net, x: Tensor) -> list[Tensor]:
    y = sums(net, x)
    mask = net.constant(net.rng.choice([0, -1e9], y.shape).astype(np.float32))
    return [net.op("ADD", [y, mask], y.value + mask.value)]


@pytest.mark.parametrize(
    "make", [read_by_a_kernel, transposed, concatenated, reshaped, sliced, pooled, resized, masked]
)
def test_large_numbers_arrive(make: Callable[[Net, Tensor], list[Tensor]]) -> None:
    net = Net(seed=0)
    for output in make(net, net.input(net.normal(SHAPE))):
        net.output(output)
    case, options = net.case(), tflgpu.Options(device="cpu", precision="fp16", cache="off")
    with tflgpu.compile(case.model, options) as compiled:
        got, *_ = compiled.run(case.inputs).values()
    assert abs(case.expected[0]).max() > 1e5
    np.testing.assert_allclose(got, case.expected[0], rtol=2e-3, atol=1e3)
