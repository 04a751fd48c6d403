"""Depthwise convolutions as products by banded matrices, emulated on a device that has no matrix units."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest

import tflgpu
from tests.kernels.networks import convolution, options
from tests.ops import windows
from tests.ops.case import Net, Tensor
from tests.ops.tolerance import ARITHMETIC
from tests.ops.windows import Window
from tests.support import emulated_matrix_units as emulated
from tflgpu.compiler import plan_model
from tflgpu.kernels.mma.products import banded_depthwise
from tflgpu.kernels.request import Request
from tflgpu.measure.known_devices import known_devices
from tflgpu.model.writer import ModelBuilder
from tflgpu.ops.image.window import Window as WindowShape
from tflgpu.options import Precision
from tflgpu.plan import Plan
from tflgpu.target import cost_model_from

TEMPLATE = "mma/products/banded_depthwise"

# Batch, height, width and channels of an image, a channel multiplier, a window, and axis, lines and blocks of a tile.
BandedCase = tuple[tuple[int, int, int, int], int, Window, tuple[int, int, int]]

CASES: tuple[BandedCase, ...] = (
    ((2, 5, 40, 6), 1, Window((1, 33), padding="SAME"), (1, 4, 8)),
    ((1, 37, 3, 5), 1, Window((29, 1), padding="SAME"), (0, 8, 4)),
    ((1, 18, 21, 6), 3, Window((9, 9), padding="SAME"), (1, 8, 4)),
    ((2, 17, 30, 7), 1, Window((7, 7), (2, 2), padding="SAME"), (1, 16, 2)),
    ((1, 40, 9, 6), 2, Window((12, 5), (1, 2), padding="VALID"), (0, 1, 64)),
    ((1, 30, 41, 9), 1, Window((6, 6), (1, 1), (3, 1), padding="SAME"), (1, 2, 16)),
    ((1, 12, 70, 5), 4, Window((3, 17), padding="VALID"), (1, 1, 32)),
)


def multiplied_depthwise(net: Net, x: Tensor, window: Window, multiplier: int) -> Tensor:
    channels = multiplier * x.shape[3]
    filters = net.constant(net.normal((1, *window.kernel, channels), 0.1))
    bias = net.constant(net.normal((channels,)))
    value = windows.depthwise_conv_2d(x.value, filters.value, bias.value, window)
    return net.op("DEPTHWISE_CONV_2D", [x, filters, bias], value, options(window) | {"depth_multiplier": multiplier})


@pytest.fixture
def only_tile(monkeypatch: pytest.MonkeyPatch) -> Callable[[tuple[int, int, int]], None]:
    """Lets every depthwise convolution be computed so, with one tile."""

    def set_tile(tile: tuple[int, int, int]) -> None:
        found = banded_depthwise._tiles

        def chosen(request: Request, window: WindowShape) -> Iterator[banded_depthwise.BandedTile]:
            return (each for each in found(request, window) if each.config == tile)

        monkeypatch.setattr(banded_depthwise, "_tiles", chosen)
        monkeypatch.setattr(banded_depthwise, "LEAST_TAPS", 0)
        monkeypatch.setattr(banded_depthwise, "GAIN", np.inf)

    return set_tile


# A work-group of a persistent kernel computes one tile after another.
RUNS = [*((case, "launch") for case in CASES), *((case, "persistent") for case in CASES[1:3])]


@pytest.mark.usefixtures("emulation")
@pytest.mark.quick(when=lambda case, executor: case in (CASES[0], CASES[2]) and executor == "launch")
@pytest.mark.parametrize(("case", "executor"), RUNS, ids=str)
def test_a_result_is_that_of_numpy(
    case: BandedCase, executor: Literal["launch", "persistent"], only_tile: Callable[..., None]
) -> None:
    shape, multiplier, window, tile = case
    only_tile(tile)
    net = Net(pytest.fail, seed=sum(shape))  # it draws nothing
    x = convolution(net, net.input(net.normal(shape)), shape[3], Window((1, 1)), "NONE")
    y = multiplied_depthwise(net, x, window, multiplier)
    net.output(convolution(net, y, 5, Window((1, 1)), "NONE"))
    drawn = net.case(ARITHMETIC)
    target = replace(emulated.TARGET, executor=executor)
    plan = plan_model(drawn.model, tflgpu.Options(precision="fp16"), target)[1]
    assert TEMPLATE in templates(plan)
    (got,) = (emulated.run if executor == "launch" else emulated.run_persistent)(plan, drawn.inputs)
    (expected,) = drawn.expected
    np.testing.assert_allclose(got, expected, rtol=0, atol=2e-3 * np.abs(expected).max())


def templates(plan: Plan) -> list[str]:
    return [planned.kernel.template for planned in plan.kernels]


@pytest.mark.parametrize(
    ("window", "precision", "banded"),
    [
        (Window((1, 200), padding="SAME"), "fp16", True),
        (Window((31, 31), padding="SAME"), "fp16", True),
        (Window((100, 9), dilation=(1, 2), padding="SAME"), "fp16", True),
        (Window((1, 200), padding="SAME"), "fp32", False),
        (Window((7, 7), padding="SAME"), "fp16", False),
        (Window((12, 12), dilation=(2, 2), padding="SAME"), "fp16", False),
    ],
    ids=str,
)
def test_large_windows_in_half_are_products(window: Window, precision: Precision, banded: bool) -> None:
    """If one axis is not dilated."""
    assert (TEMPLATE in templates(planned(window, precision, channels=96))) == banded


def test_an_image_of_one_slice_is_left_to_dense_convolutions() -> None:
    assert TEMPLATE not in templates(planned(Window((1, 200), padding="SAME"), "fp16", channels=4))


def planned(window: Window, precision: Precision, channels: int) -> Plan:
    """With an H200's costs."""
    builder, shape = ModelBuilder(), (1, 128, 128, channels)
    x, y = builder.tensor(shape), builder.tensor(shape)
    builder.op("ABS", [builder.input(shape)], [x])
    filters = builder.constant(np.zeros((1, *window.kernel, channels), np.float32))
    bias = builder.constant(np.zeros(channels, np.float32))
    builder.op("DEPTHWISE_CONV_2D", [x, filters, bias], [y], options(window) | {"depth_multiplier": 1})
    storage = "float" if precision == "fp32" else "half"
    costs = cost_model_from(known_devices()[0].probes)
    target = replace(emulated.TARGET, executor="launch", storage=storage, cost_model=costs)
    return plan_model(builder.finish([y]), tflgpu.Options(precision=precision), target)[1]
