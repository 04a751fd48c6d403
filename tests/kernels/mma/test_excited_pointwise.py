"""Squeeze-and-excitations within the convolutions behind them, emulated on a device that has no matrix units."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest

from tests.kernels.networks import convolution, depthwise, gates_of, rounded
from tests.ops import reference
from tests.ops.case import Net
from tests.ops.windows import Window
from tests.support import emulated_matrix_units as emulated
from tests.support.planning import kinds, plan_of, taking
from tflgpu.codegen.render import render
from tflgpu.kernels.mma import diagonal_depthwise, excited_pointwise, rewrites

# Shape of the image behind the first convolution, window of the depthwise one, channels of the hidden layer, whether
# one kernel computes both convolutions, and slices of a warp where it does not.
CASES = (
    ((1, 5, 7, 24), Window((3, 3), padding="SAME"), 6, True, 1),
    ((1, 9, 6, 68), Window((5, 5), (2, 2), padding="SAME"), 10, True, 1),
    ((1, 9, 11, 20), Window((2, 3), dilation=(2, 1)), 40, True, 1),
    ((1, 9, 7, 20), Window((3, 3), padding="SAME"), 3, False, 4),
    ((1, 8, 18, 20), Window((3, 3), (2, 2), padding="SAME"), 17, False, 1),
)


@pytest.mark.quick(when=lambda case, executor: executor == "launch")
@pytest.mark.parametrize(
    ("case", "executor"), [(case, "launch" if n else "persistent") for n, case in enumerate(CASES)], ids=str
)
def test_a_result_is_that_of_numpy(
    case: tuple[tuple[int, int, int, int], Window, int, bool, int],
    executor: Literal["launch", "persistent"],
) -> None:
    shape, window, hidden, is_pair, warp_slices = case
    net = Net(seed=hidden)
    x = net.input(net.normal((*shape[:3], 20)))
    x = convolution(net, net.op("ABS", [x], abs(x.value)), shape[3], Window((1, 1)), "NONE")
    x = depthwise(net, x, window, "RELU6")
    gates = gates_of(net, x, hidden)
    y = convolution(net, net.op("MUL", [x, gates], x.value * gates.value), 20, Window((1, 1)), "NONE")
    z = net.input(net.normal(y.shape))
    net.output(net.op("ADD", [y, z], y.value + z.value, activation="NONE"))
    built = net.case()
    depthwise_kind = "pointwise_depthwise" if is_pair else "depthwise"
    choose = taking({"excite", "excited_pointwise", *([depthwise_kind] if is_pair else [])}, depthwise=(1, warp_slices))
    plan = plan_of(built.model, replace(emulated.TARGET, executor=executor), choose=choose)
    assert [kind for kind in kinds(plan) if kind in (depthwise_kind, "excited_pointwise", "reduce")] == [
        depthwise_kind,
        "excited_pointwise",
    ]
    emulated.check(plan, built, run=emulated.run if executor == "launch" else emulated.run_persistent)


@pytest.mark.parametrize("step", [0.5, 0.83])
@pytest.mark.parametrize("cycles", [0.0, 1e9])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_rounding_happens_where_integers_round(
    case: tuple[tuple[int, int, int, int], Window, int, bool, int],
    cycles: float,
    step: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The mean, the hidden layer, the gates, and the image times its gates are rounded.

    cycles: what it costs to compute the hidden layer where it is read; if it is much, tiles with whole images do so.
    step: of products. Where gates divided by it are no halves, products are rounded in half precision.
    """
    shape, window, hidden, is_pair, warp_slices = case
    monkeypatch.setattr(rewrites, "squeezing_cycles", lambda *_: cycles)
    monkeypatch.setattr(diagonal_depthwise, "WARP_SLICES", (warp_slices,))
    if not is_pair:
        monkeypatch.setattr(rewrites, "PAIR_KINDS", ())
    # Seeds with which half precision moves no number to another step.
    net = Net(seed=hidden + (400 if (hidden, step) in ((17, 0.5), (10, 0.83)) else 300))
    x = net.input(net.normal((*shape[:3], 20)))
    x = convolution(net, net.op("ABS", [x], abs(x.value)), shape[3], Window((1, 1)), "NONE")
    x = depthwise(net, rounded(net, x, 0.125), window, "RELU6")
    x = rounded(net, x, 0.25)
    mean = net.op("MEAN", [x, net.integers([1, 2])], x.value.mean((1, 2), keepdims=True), {"keep_dims": True})
    y = rounded(net, convolution(net, rounded(net, mean, 0.5), hidden, Window((1, 1)), "RELU"), 0.25)
    y = convolution(net, y, shape[3], Window((1, 1)), "NONE")
    gates = rounded(net, net.op("LOGISTIC", [y], reference.logistic(y.value)), 0.125)
    y = rounded(net, net.op("MUL", [x, gates], x.value * gates.value), step)
    net.output(convolution(net, y, 20, Window((1, 1)), "NONE"))
    built = net.case()
    plan = plan_of(built.model, replace(emulated.TARGET, executor="launch"))
    assert kinds(plan)[-2:] == ["pointwise_depthwise" if is_pair else "depthwise", "excited_pointwise"]
    reader = plan.kernels[-1].node.attributes
    assert isinstance(reader, excited_pointwise.ExcitedPointwise)
    if cycles:
        assert reader.sums_channels == (warp_slices == 4)  # then several work-groups have pixels of a channel
    assert ("= whole_product_of_halves(" in render(plan).text) == (step != 0.5)
    emulated.check(plan, built)


def test_gates_are_packed_as_the_left_side_of_products() -> None:
    """By the PTX ISA: lane 4g + t has rows g and g + 8 of inner indices 2t, 2t + 1, and of those 8 behind them."""
    channels, hidden = 40, 20
    weights = np.arange(channels * hidden, dtype=np.float32).reshape(channels, hidden) + 1
    packed = excited_pointwise.pack_gates(weights, 3, 2).reshape(3, 2, 8, 4, 2, 2, 2)
    padded = np.zeros((48, 32), np.float32)
    padded[:channels, :hidden] = weights
    for block, hidden_block, g, t, half, row, element in np.ndindex(packed.shape):
        channel, inner = 16 * block + 2 * g + row, 16 * hidden_block + 4 * t + 2 * half + element
        assert packed[block, hidden_block, g, t, half, row, element] == padded[channel, inner]
