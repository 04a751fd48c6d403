"""Fusions that are measured: what is slower is undone, what is faster is kept or made. Times are given, never taken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import tflgpu
from tests.kernels.fused_networks import PairNet, product
from tests.ops.case import Case, Net
from tests.ops.tolerance import check
from tests.support.limited_devices import Simulation, limited
from tests.support.planning import kinds, plan_of
from tests.support.targets import H200, waiting
from tests.support.template_cases import image_and_gates
from tflgpu.compiler import compile_model
from tflgpu.measure.tuner import DeviceTuner
from tflgpu.plan import Plan
from tflgpu.report.report import FusionReport

PAIR = "pointwise_depthwise"
GAP = 1.0  # seconds between kernels


class TimedExecutor:
    """An executor whose kernels take the seconds of their kinds, one after another."""

    def __init__(self, plan: Plan, seconds: dict[str, float]) -> None:
        self.executable = SimpleNamespace(inputs=())
        self._seconds = [seconds.get(k.node.kind, 10.0) for k in plan.kernels]

    def profile(self, _: list[np.ndarray], runs: int) -> list[tuple[float, float]]:
        assert runs == 1
        ends = np.cumsum(np.add(self._seconds, GAP)) - GAP
        return list(zip(ends - self._seconds, ends, strict=True))


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Plan]]:
    """Lets kernels of some kinds take so many seconds, and all others ten; gives the plans that are measured."""

    def take(**seconds: float) -> list[Plan]:
        plans: list[Plan] = []

        def open_plan(_: DeviceTuner, plan: Plan) -> TimedExecutor:
            plans.append(plan)
            return TimedExecutor(plan, seconds)

        monkeypatch.setattr(DeviceTuner, "_open", open_plan)
        return plans

    return take


@pytest.mark.parametrize("proposed", [True, False], ids=["proposed", "not proposed"])
@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(5.0, True), (20.0, True), (20.9, None), (30.0, False)],
    ids=["faster", "faster by the gap", "as fast", "slower"],
)
def test_the_faster_of_one_kernel_and_two_is_taken(
    proposed: bool, seconds: float, expected: bool | None, timed: Callable[..., list[Plan]]
) -> None:
    """Two take 10 seconds each and one between them. Where one takes as long, the cost model's choice stays."""
    net = PairNet()
    data = net.finish([net.depthwise(net.pointwise())])
    target = waiting(H200, 1e6 if proposed else -1e6)
    assert (PAIR in kinds(plan_of(data, target))) == proposed
    plans = timed(**{PAIR: seconds})
    (artifact,) = compile_model(data, tflgpu.Options(), target, tuner=DeviceTuner(None, "fast"))  # type: ignore[arg-type]
    assert [PAIR in kinds(plan) for plan in plans[:2]] == [proposed, not proposed], "both are measured"
    is_one = proposed if expected is None else expected
    assert artifact.report.kernels == (3 if is_one else 4)
    assert artifact.report.fusions == (() if is_one == proposed else (FusionReport((1, 2), is_one),))
    assert all((PAIR in kinds(plan)) == is_one for plan in plans[2:]), "tiles are measured of what was chosen"


def test_groups_are_decided_one_by_one(timed: Callable[..., list[Plan]]) -> None:
    """Equal ones together: the pair of the first three is undone, another one stays."""
    net = PairNet()
    outputs = [net.depthwise(net.pointwise()) for _ in range(3)]
    data = net.finish([*outputs, net.convolution(net.depthwise(net.image), 16)])
    timed(**{PAIR: 30.0, "depthwise_pointwise": 5.0})
    target = waiting(H200, 1e6)
    (artifact,) = compile_model(data, tflgpu.Options(), target, tuner=DeviceTuner(None, "fast"))  # type: ignore[arg-type]
    assert artifact.report.fusions == tuple(FusionReport((i, i + 1), False) for i in (1, 3, 5))
    assert artifact.report.operators[7].kernel == artifact.report.operators[8].kernel


@pytest.mark.parametrize("is_one", [True, False], ids=["one kernel", "three"])
def test_what_was_found_is_right_and_kept(
    is_one: bool, timed: Callable[..., list[Plan]], tmp_path: Path, device_name: str
) -> None:
    case = excitation(seed=0)
    options = tflgpu.Options(
        device=device_name,
        execution=tflgpu.Execution(kernels="gpu", tuning="fast"),
        precision="fp32",
        cache_files=tflgpu.CacheFiles(path=tmp_path),
    )
    with limited(device_name, Simulation()):  # whose local memory is real
        proposed = (
            "excite"
            in tflgpu.compile(case.model, replace(options, execution=replace(options.execution, tuning="none"))).source
        )
        plans = timed(excite=5.0 if is_one else 50.0)
        model = tflgpu.compile(case.model, options)
        count = len(plans)
        assert ("excite" in model.source) == is_one
        check(next(iter(model.run(case.inputs).values())), case.expected[0], case.tolerance, "fp32", case.describe)
        found = () if is_one == proposed else (FusionReport((3, 4, 5, 6), is_one),)
        assert model.report.fusions == found
        assert all(str(fusion) in str(model.report) for fusion in found)
        warm = tflgpu.compile(case.model, options)
        assert warm.source == model.source and warm.report.fusions == found
        retrained = tflgpu.compile(excitation(seed=1).model, options)
        assert ("excite" in retrained.source) == is_one and retrained.report.fusions == found
        assert len(plans) == count, "nothing is measured twice"


def excitation(seed: int) -> Case:
    net = Net(seed=seed)
    x, gates = image_and_gates(net, (1, 5, 7, 12), 3)
    net.output(product(net, x, gates))
    return net.case()
