"""Models of so little work that one core computes them where others would wake too late."""

from __future__ import annotations

from dataclasses import replace

import pytest

import tflgpu
from tests.kernels.cpu.pairs_in_bands import CASES
from tests.kernels.networks import convolution, depthwise
from tests.ops.case import Case, Net
from tests.quick import RUNTIMES
from tests.support import template_cases
from tests.support.limited_devices import Simulation, limited
from tests.support.planning import plan_of
from tflgpu.plan import Plan
from tflgpu.plan.plan import traffic
from tflgpu.target import Limits, Target, cpu_work

CORES = Target(family="cpu", compute_units=2, storage="float", executor="claiming")


def pair() -> Case:
    """A convolution and a depthwise one, whose rows two cores share."""
    net = Net(seed=1)
    shape, channels, window, second, _ = CASES["rows that bands share"]
    expanded = convolution(net, net.input(net.normal(shape)), channels, window, "NONE")
    net.output(depthwise(net, expanded, second, "NONE"))
    return net.case()


def plan(target: Target) -> Plan:
    return plan_of(pair().model, target)


def test_little_work_is_planned_for_one_core() -> None:
    usual = plan(CORES)
    work = sum(cpu_work(planned.kernel.macs, traffic(usual, planned)) for planned in usual.kernels)
    little = replace(CORES, limits=Limits(little_work=work + 1))
    assert plan(replace(CORES, limits=Limits(little_work=work))).target.compute_units == 2
    assert plan(little).target == little.of_one_core
    assert plan(replace(little, executor="launch")).target.compute_units == 2


@pytest.mark.quick(when=lambda platform: platform == RUNTIMES[0])
@pytest.mark.parametrize("platform", RUNTIMES)
def test_unrolled_loops_give_the_same_answers(platform: str) -> None:
    net = Net(seed=1)
    for build in (template_cases.convolutions, template_cases.depthwise, template_cases.grouped_convolution):
        net.output(build(net))
    options = tflgpu.Options(execution=tflgpu.Execution(kernels="cpu"), precision="fp32", cache="off")
    turns = []
    for case in (net.case(), pair()):
        for work in (0, 1 << 40):
            with limited(platform, Simulation({"little_work": work})):
                model = tflgpu.compile(case.model, options)
                turns.append(model.source.count("#pragma nounroll"))
                case.check(model.run(case.inputs).values())
    assert turns[1] < turns[0]
    assert turns[3] <= turns[2]  # where registers are narrow the pair is two kernels, whose loops stay
