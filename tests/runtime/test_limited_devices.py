"""Models on devices that hold little, simulated by a layer that refuses what exceeds their limits."""

from __future__ import annotations

import numpy as np
import pytest

import tflgpu
from tests.quick import RUNTIMES
from tests.support.limited_devices import SIMULATIONS, limited
from tflgpu import DeviceError, Options
from tflgpu.model.writer import ModelBuilder

INTEL = RUNTIMES[0]
SMALL_BUFFERS = SIMULATIONS["buffers of 64 MB"]


def two_large_layers(side: int = 3000) -> bytes:
    """Two fully connected layers with 36 MB of weights each: they move elements by one and by two places."""
    b = ModelBuilder()
    x = b.input((1, side))
    for places in (1, 2):
        weights = b.constant(np.roll(np.eye(side, dtype=np.float32), places, 0))
        y = b.tensor((1, side))
        b.op("FULLY_CONNECTED", [x, weights], [y])
        x = y
    return b.finish([x])


@pytest.mark.parametrize("kernels", ["cpu", "gpu"])
def test_weights_are_shared_out_over_buffers(kernels: str) -> None:
    with limited(INTEL, SMALL_BUFFERS):
        model = tflgpu.compile(two_large_layers(), Options(kernels=kernels, precision="fp32", cache="off"))
        x = np.arange(3000, dtype=np.float32)[None]
        (y,) = model.run(x).values()
    np.testing.assert_array_equal(y, np.roll(x, 3))


def images(count: int, side: int) -> bytes:
    """A chain of additions that are all needed at the end, so that as many images live at once."""
    b = ModelBuilder()
    shape = (1, side, side, 4)
    first = b.input(shape)
    living = []
    for number in range(count):
        y = b.tensor(shape)
        b.op("CUMSUM", [first, b.constant(np.array(number % 3 + 1, np.int32))], [y])
        living.append(y)
    total = living[0]
    for y in living[1:]:
        z = b.tensor(shape)
        b.op("MAXIMUM", [total, y], [z])
        total = z
    return b.finish([total])


def test_activations_are_shared_out_over_buffers() -> None:
    """Four images of 25 MB live at once."""
    x = np.ones((1, 1250, 1250, 4), np.float32)
    with limited(INTEL, SMALL_BUFFERS):
        model = tflgpu.compile(images(4, 1250), Options(precision="fp32", cache="off"))
        assert (model.report.arena_bytes or 0) > 64 << 20
        (y,) = model.run(x).values()
    np.testing.assert_array_equal(y, np.maximum(np.maximum(x.cumsum(1), x.cumsum(2)), x.cumsum(3)))


def test_a_tensor_larger_than_any_buffer_is_refused_with_the_number() -> None:
    with limited(INTEL, SMALL_BUFFERS), pytest.raises(DeviceError, match="no buffers of more than 67108864 bytes"):
        tflgpu.compile(images(1, 2100), Options(precision="fp32", cache="off"))
