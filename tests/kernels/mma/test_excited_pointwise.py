"""Squeeze-and-excitations within the convolutions behind them, emulated on a device that has no matrix units."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest

import tflgpu
from tests.conftest import missing
from tests.kernels.networks import convolution
from tests.ops.case import Net
from tests.ops.tolerance import ARITHMETIC
from tests.ops.windows import Window
from tests.support import emulated_matrix_units as emulated
from tests.support.template_cases import image_and_gates
from tflgpu.compiler import plan_model
from tflgpu.kernels import shared_sums

SHAPES = (((1, 5, 7, 24), 6), ((1, 9, 6, 100), 10), ((1, 4, 4, 260), 12))


@pytest.mark.quick(when=lambda shape, hidden, executor: shape == SHAPES[0][0] and executor == "persistent")
@pytest.mark.parametrize("executor", ["launch", "persistent"])
@pytest.mark.parametrize(("shape", "hidden"), SHAPES, ids=str)
def test_a_result_is_that_of_numpy(
    shape: tuple[int, int, int, int],
    hidden: int,
    executor: Literal["launch", "persistent"],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not any(emulated.DEVICE in device.platform for device in tflgpu.devices()):
        missing(emulated.DEVICE)
    monkeypatch.setattr(shared_sums, "COUNTS", ())  # shares would be kernels of their own
    net = Net(pytest.fail, seed=hidden)  # it draws nothing
    x, gates = image_and_gates(net, shape, hidden)
    y = convolution(net, net.op("MUL", [x, gates], x.value * gates.value), 20, Window((1, 1)), "NONE")
    z = net.input(net.normal(y.shape))
    net.output(net.op("ADD", [y, z], y.value + z.value, activation="NONE"))
    case = net.case(ARITHMETIC)
    _, plan = plan_model(case.model, tflgpu.Options(precision="fp16"), replace(emulated.TARGET, executor=executor))
    assert "excited_pointwise" in [planned.node.kind for planned in plan.kernels]
    (got,) = (emulated.run if executor == "launch" else emulated.run_persistent)(plan, case.inputs)
    (expected,) = case.expected
    np.testing.assert_allclose(got, expected, rtol=0, atol=2e-3 * np.abs(expected).max())
