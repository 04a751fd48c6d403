"""Plans keep to what a device can hold, however little that is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from tests.ops.case import Net, Tensor
from tests.ops.reference import softmax
from tests.ops.windows import Window, max_pool_2d
from tests.support.fixed_cases import fixed_cases
from tests.support.planning import graph_of, plan_of
from tests.support.targets import CPU
from tests.support.targets import H200_LAUNCHES as H200
from tflgpu.graph.layout import LANES
from tflgpu.kernels.candidates import TileConfig
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import items_per_tile
from tflgpu.plan import Plan, make_plan
from tflgpu.target import Limits, Target

LIMITS = {
    "1 work-item": Limits(work_group_size=1),
    "7 work-items": Limits(work_group_size=7),
    "64 work-items": Limits(work_group_size=64),
    "96 work-items": Limits(work_group_size=96),
    "no local memory": Limits(local_bytes=0),
    "512 bytes": Limits(local_bytes=512),
    "8 KiB": Limits(local_bytes=8 << 10),
    "64 work-items and 16 KiB": Limits(work_group_size=64, local_bytes=16 << 10),
}
SOME = [LIMITS[name] for name in ("64 work-items and 16 KiB", "1 work-item", "no local memory")]


def models() -> Iterator[bytes]:
    """Models that together have every kernel."""
    for case in fixed_cases().values():
        yield case.model


def plans(target: Target) -> Iterator[Plan]:
    for model in models():
        yield plan_of(model, target)


def test_tiles_of_cpus_keep_to_the_turns_of_loops() -> None:
    unlimited = CPU
    target = replace(unlimited, limits=Limits(loop_turns=1000))
    for items, cost in product((1, 100, 1_000_000), (1, 100, 5000)):
        pieces = items_per_tile(items, target, cost)
        assert pieces == 1 or pieces * cost <= 1000
        assert pieces <= items_per_tile(items, unlimited, cost)


def a_pool(net: Net) -> tuple[Tensor, int]:
    """And the turns of all its loops."""
    x = net.input(net.normal((1, 64, 64, 4)))
    value = max_pool_2d(x.value, Window((9, 9), padding="SAME"))
    options = {"padding": "SAME", "stride_h": 1, "stride_w": 1, "filter_height": 9, "filter_width": 9}
    return net.op("MAX_POOL_2D", [x], value, options, activation="NONE"), 64 * 64 * 9 * 9


def a_softmax(net: Net) -> tuple[Tensor, int]:
    x = net.input(net.normal((1000, 50 * LANES)))
    return net.op("SOFTMAX", [x], softmax(x.value), {"beta": 1.0}), 1000 * 3 * 50


@pytest.mark.parametrize("build", [a_pool, a_softmax])
def test_loops_of_loops_keep_to_the_turns(build: Callable[[Net], tuple[Tensor, int]]) -> None:
    net = Net(seed=1)
    output, turns = build(net)
    net.output(output)
    target = Target(family="cpu", compute_units=1, storage="float", limits=Limits(loop_turns=2000))
    (planned,) = plan_of(net.case().model, target).kernels
    assert turns / planned.kernel.tiles <= 2000


def test_convolutions_of_cpus_keep_to_the_turns_of_loops() -> None:
    net = Net(seed=1)
    weights = net.constant(net.normal((16, 1, 1, 64)))
    image = net.input(net.normal((1, 100, 100, 64)))
    output = np.tensordot(image.value, weights.value[:, 0, 0], ([3], [1]))
    options = {"padding": "SAME", "stride_h": 1, "stride_w": 1}
    net.output(net.op("CONV_2D", [image, weights, None], output, options, activation="NONE"))
    model = net.case().model
    target = Target(family="cpu", compute_units=1, storage="float", limits=Limits(loop_turns=200))
    tiles = max(planned.kernel.tiles for planned in plan_of(model, target).kernels)
    blocks = 100 * 100 / 12  # of at most 12 pixels, with at least a turn for each vec4 that is read
    assert blocks / tiles * 64 / LANES <= 200


@pytest.mark.quick(when=lambda limits: limits in SOME)
@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
def test_kernels_keep_to_the_limits(limits: Limits) -> None:
    """On each family, and with matrix units."""
    targets = [replace(H200, limits=limits), replace(H200, limits=limits, ptx=False, matrix_unit=None, storage="float")]
    targets.append(replace(targets[-1], family="cpu"))
    for kernel in (planned.kernel for target in targets for plan in plans(target) for planned in plan.kernels):
        assert kernel.local_size <= limits.work_group_size, kernel
        assert kernel.workspace * 16 <= limits.local_bytes, kernel


@pytest.mark.quick(when=lambda limits: limits in SOME[:1])
@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
def test_no_candidate_exceeds_the_limits(limits: Limits) -> None:
    """Whatever a tuner takes."""
    target = replace(H200, limits=limits, compute_units=2)

    def last(_: Request, ranked: list[TileConfig]) -> TileConfig:
        return ranked[-1]

    for model in models():
        graph = graph_of(model)
        for chooser in (last, lambda _, ranked: ranked[len(ranked) // 2]):
            for planned in make_plan(graph, target, chooser).kernels:  # type: ignore[arg-type]
                assert planned.kernel.local_size <= limits.work_group_size
                assert planned.kernel.workspace * 16 <= limits.local_bytes


def test_plans_of_equal_machines_are_equal() -> None:
    """A CPU's runtime derives its limits from the machine's memory and caches, which may differ by some pages."""
    ample = Limits(work_group_size=4096, local_bytes=1 << 20, allocation_bytes=12_638_251_008)
    other = replace(ample, allocation_bytes=12_638_246_912, local_bytes=1 << 18, work_group_size=8192)
    assert ample.of_plans == other.of_plans
    scarce = Limits(work_group_size=64, local_bytes=16 << 10, allocation_bytes=64 << 20)
    assert scarce.of_plans == scarce
