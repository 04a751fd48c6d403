"""Squeeze-and-excitations as one kernel: right results, and only where nothing else needs what is inside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import pytest

from tests.kernels.fused_networks import product
from tests.ops import reference
from tests.ops.case import Net, Tensor
from tests.quick import on_first_runtime
from tests.support.limited_devices import Simulation, limited
from tests.support.planning import kinds, plan_of, taking, templates
from tests.support.running import options_of, run_chosen
from tests.support.targets import CPU, H200
from tests.support.template_cases import image_and_gates


@pytest.mark.quick(when=lambda hidden, device_name: hidden in (3, 125) and on_first_runtime(device_name))
@pytest.mark.second_runtime(when=lambda executor: executor == "launch")
@pytest.mark.parametrize(("executor", "precision"), [("launch", "fp32"), ("persistent", "fp16")])
@pytest.mark.parametrize(
    ("shape", "hidden"), [((1, 5, 7, 12), 3), ((2, 9, 6, 40), 10), ((1, 40, 30, 8), 8), ((1, 2, 2, 64), 125)]
)
def test_the_kernel_is_right(
    shape: Sequence[int],
    hidden: int,
    executor: Literal["launch", "persistent"],
    precision: Literal["fp32", "fp16"],
    device_name: str,
) -> None:
    net = Net(seed=hidden)
    x, gates = image_and_gates(net, shape, hidden)
    y = product(net, x, gates)
    y = net.op("ADD", [y, x], y.value + x.value)
    other = net.input(net.normal(tuple(shape)))
    net.output(net.op("SUB", [other, y], other.value - y.value, activation="RELU6"))
    with limited(device_name, Simulation()) as device:
        options = options_of(kernels="gpu", executor=executor, precision=precision)
        assert "excite" in kinds(run_chosen(net.case(), device, options, taking({"excite"})))


def test_an_infinity_reaches_what_it_is_multiplied_with(device_name: str) -> None:
    """And not the lanes past the last hidden channel."""
    net = Net(seed=0)
    values = np.abs(net.factors((1, 5, 7, 8)))
    values[0, 2, 3, 5] = np.inf
    x = net.input(values)
    mean = net.op("MEAN", [x, net.integers([1, 2])], x.value.mean((1, 2), keepdims=True), {"keep_dims": True})
    gates = mean
    for inputs, outputs in ((8, 3), (3, 8)):
        weights = net.constant(np.abs(net.factors((outputs, 1, 1, inputs))))
        bias, value = net.constant(np.zeros(outputs, np.float32)), gates.value @ weights.value[:, 0, 0].T
        options = {"padding": "SAME", "stride_h": 1, "stride_w": 1}
        gates = net.op("CONV_2D", [gates, weights, bias], value, options, activation="NONE")
    gates = net.op("RELU6", [gates], np.minimum(gates.value, 6))
    net.output(product(net, x, gates))
    with limited(device_name, Simulation()) as device:
        options = options_of(kernels="gpu", executor="launch")
        assert "excite" in kinds(run_chosen(net.case(), device, options, taking({"excite"})))


def test_it_pays_while_the_hidden_layer_is_small() -> None:
    for channels, hidden, joined in ((96, 24, True), (480, 120, True), (960, 240, False), (16, 1200, False)):
        net = Net(seed=0)
        net.output(product(net, *image_and_gates(net, (1, 14, 14, channels), hidden)))
        assert ("gpu/excite" in templates(plan_of(net.case().model, H200))) == joined


def test_cpus_compute_each_layer_once() -> None:
    net = Net(seed=0)
    net.output(product(net, *image_and_gates(net, (1, 14, 14, 96), 24)))
    assert "gpu/excite" not in templates(plan_of(net.case().model, CPU))


def gates_are_read_again(net: Net) -> Tensor:
    x, gates = image_and_gates(net, (1, 14, 14, 96), 24)
    net.output(net.op("EXP", [gates], np.exp(gates.value)))
    return product(net, x, gates)


def gates_of_another_shape(net: Net) -> Tensor:
    """One gate for all channels."""
    x = image_and_gates(net, (1, 14, 14, 96), 24)[0]
    return product(net, x, image_and_gates(net, (1, 14, 14, 1), 24)[1])


def image_of_one_axis(net: Net) -> Tensor:
    """Which the gates broadcast, not the other way round."""
    _, gates = image_and_gates(net, (1, 14, 14, 96), 24)
    return product(net, net.input(net.normal((96,))), gates)


def gates_past_the_last_channel(net: Net) -> Tensor:
    """Half of one, where there has to be nothing."""
    x, gates = image_and_gates(net, (1, 14, 14, 94), 24)
    gates = net.op("LOGISTIC", [gates], reference.logistic(gates.value))
    return product(net, x, gates)


@pytest.mark.parametrize(
    "build", [gates_are_read_again, gates_of_another_shape, image_of_one_axis, gates_past_the_last_channel]
)
def test_others_stay_as_they_are(build: Callable[[Net], Tensor]) -> None:
    net = Net(seed=0)
    net.output(build(net))
    assert "gpu/excite" not in templates(plan_of(net.case().model, H200))
