"""Work-groups of other sizes, which only the tuner chooses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

import tflgpu
from tests.kernels.networks import convolution, depthwise
from tests.ops import reference
from tests.ops.case import Case, Net
from tests.ops.windows import Window
from tests.quick import RUNTIMES
from tests.support.limited_devices import Simulation, limited
from tests.support.planning import plan_of
from tests.support.running import run_chosen
from tests.support.targets import GPU
from tflgpu.kernels.candidates import TileConfig
from tflgpu.kernels.portable.matmul_kernels import SIZES
from tflgpu.kernels.request import Request
from tflgpu.target import Limits, Target


def network() -> Case:
    """A kernel of each kind whose groups can have other sizes."""
    net = Net(seed=1)
    x = convolution(net, net.input(net.normal((1, 9, 7, 6))), 12, Window((3, 3), padding="SAME"), "RELU")
    net.output(depthwise(net, x, Window((3, 3), padding="SAME"), "NONE"))
    left, right = net.input(net.normal((2, 30, 50))), net.input(net.normal((2, 50, 20)))
    net.output(net.op("BATCH_MATMUL", [left, right], left.value @ right.value, {"adj_x": False, "adj_y": False}))
    for rows in (1, 40):
        y, weights = net.input(net.normal((rows, 30))), net.constant(net.normal((22, 30)))
        value = reference.fully_connected(y.value, weights.value, np.zeros(1))
        net.output(net.op("FULLY_CONNECTED", [y, weights], value, {}))
    return net.case()


@pytest.mark.device
@pytest.mark.parametrize("size", [64, 256])
def test_kernels_are_right_with_groups_of_any_size(size: int) -> None:
    case, sizes = network(), list[int]()

    def choose(_: Request, configs: Sequence[TileConfig]) -> TileConfig:
        sizes.append(configs[-1 if size == 256 else -2][-1])
        return configs[-1 if size == 256 else -2]

    options = tflgpu.Options(execution=tflgpu.Execution(kernels="gpu"), precision="fp32")
    with limited(RUNTIMES[0], Simulation()) as device:  # whose local memory is real
        plan = run_chosen(case, device, options, choose)
    assert sizes == [size] * 5
    assert [k.kernel.local_size for k in plan.kernels].count(size) == 5


@pytest.mark.parametrize(
    ("target", "count"),
    [(GPU, 2), (replace(GPU, executor="persistent"), 0), (replace(GPU, limits=Limits(work_group_size=64)), 0)],
    ids=["launches", "persistent", "small groups"],
)
def test_sizes_are_offered_where_executor_and_device_allow_them(target: Target, count: int) -> None:
    """Behind all others, so that nothing changes without measuring."""
    offered: list[int] = []

    def choose(_: Request, configs: Sequence[TileConfig]) -> TileConfig:
        offered.append(sum(config[-1] in SIZES for config in configs))
        return configs[0]

    plan = plan_of(network().model, target, choose=choose)
    assert offered == [count] * 5
    assert {k.kernel.local_size for k in plan.kernels} == {target.local_size}
