"""Softmax and layer normalization, one kernel each, however long the rows and wherever the channels of a pixel lie."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import pytest

from tests.kernels.networks import (
    LAYER_NORMS,
    binary,
    channel_mean,
    layer_norm_of_products,
    number,
    rms_norm_of_products,
)
from tests.ops import reference
from tests.ops.case import Net, Tensor
from tests.quick import on_first_runtime
from tests.support import emulated_matrix_units as emulated
from tests.support.limited_devices import Simulation, limited
from tests.support.planning import graph_of, plan_of, templates
from tests.support.running import run_checked
from tests.support.targets import CPU
from tflgpu.ops.arithmetic.reduction import LayerNorm

Family = Literal["cpu", "gpu"]

# Shapes of 1 to 4 axes; pixels and channels in whole vectors and not, many short rows and few long ones.
SHAPES = (
    (5,),
    (7, 21),
    (2, 1000),
    (3, 5, 64),
    (1, 150, 20),
    (2, 3, 3, 37),
    (1, 4, 8, 6),
    (2, 1, 1, 130),
    (1, 100_000),
    (1, 6, 4099),
)


def assert_right(net: Net, device_name: str, family: Family, template: str) -> None:
    case = net.case()
    for precision in ("fp32", "fp16"):
        with limited(device_name, Simulation()):
            assert template in run_checked(case, device=device_name, kernels=family, precision=precision)


def is_quick(shape: tuple[int, ...], device_name: str) -> bool:
    return shape == (2, 3, 3, 37) and on_first_runtime(device_name)


@pytest.mark.quick(when=is_quick)
@pytest.mark.parametrize("family", ["cpu", "gpu"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_softmax_is_right(shape: tuple[int, ...], family: Family, device_name: str) -> None:
    """The numbers are large, with elementwise functions before and behind."""
    net = Net(seed=len(shape))
    x = binary(net, "MUL", net.input(net.normal(shape, 30)), number(net, 2))
    y = net.op("SOFTMAX", [x], reference.softmax(x.value, 0.5), {"beta": 0.5})
    net.output(binary(net, "SUB", net.constant(net.normal(shape[-1:])), y))
    assert_right(net, device_name, family, "softmax")


@pytest.mark.quick(when=is_quick)
@pytest.mark.parametrize("family", ["cpu", "gpu"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_layer_norm_is_right(shape: tuple[int, ...], family: Family, device_name: str) -> None:
    """The numbers are far from zero, with an elementwise function behind."""
    net = Net(seed=len(shape))
    x = net.input(net.normal(shape) + np.float32(3))
    for norm in (LAYER_NORMS[len(shape) % 4], rms_norm_of_products):
        net.output(binary(net, "MUL", norm(net, x), net.input(net.normal(shape))))
    assert_right(net, device_name, family, "layer_norm")


@pytest.mark.parametrize("build", LAYER_NORMS, ids=lambda build: build.__name__)
def test_every_way_to_write_it_becomes_one_kernel(build: Callable[[Net, Tensor], Tensor], device_name: str) -> None:
    net = Net(seed=1)
    net.output(build(net, net.input(net.normal((3, 5, 12)))))
    assert_right(net, device_name, "cpu", "layer_norm")
    found = [template for template in templates_on_cpu(net) if "reshape" not in template and "map" not in template]
    assert found == ["rows/layer_norm_vectors"]


def over_another_axis(net: Net, x: Tensor) -> Tensor:
    mean = net.op("MEAN", [x, net.integers([1])], x.value.mean(1, keepdims=True), {"keep_dims": True})
    centered = binary(net, "SUB", x, mean)
    variance = channel_mean(net, binary(net, "MUL", centered, centered))
    return binary(net, "MUL", centered, root(net, variance))


def around_another_mean(net: Net, x: Tensor) -> Tensor:
    other = binary(net, "ADD", x, net.input(net.normal(x.shape)))
    centered = binary(net, "SUB", x, channel_mean(net, other))
    variance = channel_mean(net, binary(net, "MUL", centered, centered))
    return binary(net, "MUL", centered, root(net, variance))


def of_another_tensor(net: Net, x: Tensor) -> Tensor:
    other = binary(net, "ADD", x, net.input(net.normal(x.shape)))
    difference = binary(net, "SQUARED_DIFFERENCE", x, channel_mean(net, x))
    return binary(
        net, "MUL", binary(net, "SUB", other, channel_mean(net, other)), root(net, channel_mean(net, difference))
    )


def with_an_epsilon_for_each_row(net: Net, x: Tensor) -> Tensor:
    centered = binary(net, "SUB", x, channel_mean(net, x))
    variance = channel_mean(net, binary(net, "MUL", centered, centered))
    epsilons = net.constant(np.abs(net.factors((*x.shape[:-1], 1))))
    return binary(net, "MUL", centered, root(net, binary(net, "ADD", variance, epsilons)))


def with_rows_for_columns(net: Net, x: Tensor) -> Tensor:
    """The number of a row multiplies a channel: there are as many of each."""
    centered = binary(net, "SUB", x, channel_mean(net, x))
    scale = root(net, channel_mean(net, binary(net, "MUL", centered, centered)))
    turned = net.op("RESHAPE", [scale, net.integers([1, 1, 8])], scale.value.reshape(1, 1, 8), {"new_shape": [1, 1, 8]})
    return binary(net, "MUL", centered, turned)


@pytest.mark.parametrize(
    "build",
    [over_another_axis, around_another_mean, of_another_tensor, with_an_epsilon_for_each_row, with_rows_for_columns],
    ids=lambda build: build.__name__,
)
def test_nothing_else_becomes_one(build: Callable[[Net, Tensor], Tensor], device_name: str) -> None:
    net = Net(seed=1)
    net.output(build(net, net.input(net.normal((1, 8, 8)) + np.float32(1))))
    norms = [node.attributes for node in graph_of(net.case().model).nodes if node.kind == "layer_norm"]
    assert not any(isinstance(norm, LayerNorm) and norm.centered for norm in norms)
    assert_right(net, device_name, "cpu", "reduce")


def test_a_normalization_may_follow_another(device_name: str) -> None:
    """And the first one's parts may have other readers."""
    net = Net(seed=1)
    first = layer_norm_of_products(net, net.input(net.normal((2, 6, 12))))
    net.output(layer_norm_of_products(net, binary(net, "ADD", first, channel_mean(net, first))))
    assert_right(net, device_name, "cpu", "layer_norm")


def root(net: Net, variance: Tensor) -> Tensor:
    shifted = binary(net, "ADD", variance, number(net, 0.01))
    return net.op("RSQRT", [shifted], 1 / np.sqrt(shifted.value))


def templates_on_cpu(net: Net) -> list[str]:
    return templates(plan_of(net.case().model, CPU))


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("channels", [129, 256])
def test_work_items_of_a_persistent_kernel_hold_several_rows(channels: int) -> None:
    """More rows than all compute units have at once. Some work-items have a vec4 less than others."""
    net = Net(seed=channels)
    x = net.input(net.normal((1100, channels)))
    net.output(layer_norm_of_products(net, net.op("ABS", [x], abs(x.value))))
    case = net.case()
    plan = plan_of(case.model, emulated.TARGET)
    (kernel,) = (k.kernel for k in plan.kernels if k.kernel.template == "rows/layer_norm")
    assert vars(kernel.parameters)["at_once"] == 2
    emulated.check(plan, case)
