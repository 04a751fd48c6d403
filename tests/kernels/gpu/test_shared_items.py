"""Items that several work-items of a group share: windows, greatest elements and running sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from tests.kernels.gpu.reductions import running_sum
from tests.kernels.networks import options
from tests.ops import windows
from tests.ops.case import Net
from tests.ops.windows import Window
from tests.support import emulated_matrix_units as emulated
from tests.support.planning import plan_of
from tflgpu.kernels.kernel import Kernel
from tflgpu.kernels.request import Chooser, Request, TileConfig, first_ranked
from tflgpu.target import Target

# Local memory of its own, as Intel's CPU runtime does not say that it has.
TARGET = replace(emulated.PORTABLE, storage="float")


def kernels_of(net: Net, template: str, target: Target = TARGET, choose: Chooser = first_ranked) -> list[Kernel]:
    """The kernels of templates whose names begin so, of a model whose results are right in float."""
    case = net.case()
    plan = plan_of(case.model, target, choose=choose)
    emulated.check(plan, case, 1e-5)
    return [k.kernel for k in plan.kernels if k.kernel.template.startswith(template)]


def windows_of_many_taps(net: Net) -> None:
    """Long and large ones, of any stride and dilation, in images that some of them leave."""
    channels = 5
    given = net.input(net.normal((2, 19, 45, channels)))
    x = net.op("ABS", [given], abs(given.value))
    for kernel, stride, dilation, multiplier in (
        ((1, 33), 1, 1, 1),
        ((5, 7), 1, 1, 3),
        ((18, 1), 2, 1, 2),
        ((2, 25), 3, 1, 1),
        ((3, 11), 1, 3, 4),
    ):
        window = Window(kernel, (stride, stride), (dilation, dilation), padding="SAME")
        weights = net.constant(net.normal((1, *kernel, channels * multiplier), 0.3))
        bias = net.constant(net.normal((channels * multiplier,)))
        value = windows.depthwise_conv_2d(x.value, weights.value, bias.value, window)
        parameters = options(window) | {"depth_multiplier": multiplier}
        net.output(net.op("DEPTHWISE_CONV_2D", [x, weights, bias], value, parameters))


def test_work_items_share_the_taps_of_a_window() -> None:
    net = Net(seed=1)
    windows_of_many_taps(net)
    kernels = kernels_of(net, "gpu/depthwise_window")
    assert len(kernels) == 5 and all(vars(k.parameters)["split_k"] != 1 for k in kernels)


@pytest.mark.quick(when=lambda outputs, axis: (outputs, axis) == (2, 1))
@pytest.mark.parametrize(("outputs", "axis"), [(2, 0), (2, 1), (4, 0), (8, 1)])
def test_outputs_share_what_their_windows_read(outputs: int, axis: int) -> None:
    """Along the axis where it is possible: a window has several taps there."""

    def choose(request: Request, ranked: Sequence[TileConfig]) -> TileConfig:
        return next((tile for tile in ranked if tile[:2] == (outputs, axis)), ranked[0])

    net = Net(seed=outputs)
    windows_of_many_taps(net)
    found = [vars(k.parameters) for k in kernels_of(net, "gpu/depthwise_window", choose=choose)]
    assert len(found) == 5 and sum((p["outputs"], p["axis"]) == (outputs, axis) for p in found) >= 3


@pytest.mark.quick(when=lambda gap: gap)
@pytest.mark.parametrize(
    ("code", "shape", "dtype", "gap"),
    [
        ("ARG_MAX", (2, 1501), np.float32, None),
        ("ARG_MIN", (2, 1501), np.float32, None),
        ("ARG_MAX", (2, 700, 5), np.int32, None),
        ("ARG_MAX", (3, 1001), np.float32, 7),
    ],
)
def test_work_items_share_the_search_for_the_greatest_element(
    code: str, shape: tuple[int, ...], dtype: type[np.generic], gap: int | None
) -> None:
    """The first of equals, whichever work-item finds it; and a number beats NaN. gap: from one NaN to the next."""
    net = Net(seed=1)
    values = net.rng.integers(-3, 3, shape).astype(dtype)
    if gap:
        values[:, :900:gap] = np.nan
    find = np.nanargmax if code == "ARG_MAX" else np.nanargmin
    x, found = net.input(values), find(values, 1).astype(np.int32)
    net.output(net.op(code, [x, net.integers(1)], found, {"output_type": "INT32"}))
    (shared,) = kernels_of(net, "portable/arg_extreme")
    assert vars(shared.parameters)["sharers"] != 1


@pytest.mark.quick(when=lambda shape: shape == (3, 3000))
@pytest.mark.parametrize(
    ("shape", "axis"), [((3, 3000), 1), ((3000, 5), 0), ((1, 3, 2500, 6), 2), ((2, 2500, 3, 3), 1)]
)
def test_work_items_share_running_sums(shape: tuple[int, ...], axis: int) -> None:
    net = Net(seed=1)
    floats = net.input(net.normal(shape))
    whole = net.input(net.rng.integers(-9, 9, shape).astype(np.int32))
    net.output(running_sum(net, floats, axis, exclusive=False, reverse=False))
    net.output(running_sum(net, whole, axis, exclusive=True, reverse=True))
    kernels = kernels_of(net, "portable/cumulative_sum")
    assert len(kernels) == 2 and all(vars(k.parameters)["sharers"] != 1 for k in kernels)


def test_few_long_results_take_large_groups() -> None:
    net = Net(seed=1)
    row = net.input(net.normal((2, 9001)))
    exponents = np.exp(row.value - row.value.max(1, keepdims=True))
    net.output(net.op("SOFTMAX", [row], exponents / exponents.sum(1, keepdims=True), {"beta": 1.0}))
    found = row.value.argmax(1).astype(np.int32)
    net.output(net.op("ARG_MAX", [row, net.integers(1)], found, {"output_type": "INT32"}))
    launches = replace(TARGET, executor="launch")
    kernels = kernels_of(net, "portable/", launches)
    sizes = [k.local_size for k in kernels if vars(k.parameters)["sharers"] == k.local_size]
    assert len(sizes) == 2 and min(sizes) > launches.local_size
