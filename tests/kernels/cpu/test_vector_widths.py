"""Kernels of CPUs whose vector registers hold fewer floats than this machine's."""

from __future__ import annotations

import pytest

import tflgpu
from tests.ops.case import Net
from tests.quick import RUNTIMES
from tests.support import template_cases
from tests.support.limited_devices import Simulation, limited
from tests.support.planning import plan_of
from tests.support.row_cases import Heads, attention, computed


@pytest.mark.quick(when=lambda width, platform: width == 8 and platform == RUNTIMES[0])
@pytest.mark.parametrize("platform", RUNTIMES)
@pytest.mark.parametrize("width", [4, 8])
def test_convolutions_fill_the_registers_there_are(width: int, platform: str) -> None:
    """Blocks are smaller, and the results right."""
    net = Net(seed=1)
    for build in (template_cases.convolutions, template_cases.wide_convolution, template_cases.grouped_convolution):
        net.output(build(net))
    net.output(template_cases.packed_convolution(net))
    net.output(template_cases.runtime_weights(net))
    net.output(template_cases.products(net))
    case, options = net.case(), tflgpu.Options(execution=tflgpu.Execution(kernels="cpu"), precision="fp32", cache="off")
    with limited(platform, Simulation({"vector_width": width})):
        model = tflgpu.compile(case.model, options)
        case.check(model.run(case.inputs).values())
    with limited(platform, Simulation({"vector_width": 16})):
        assert tflgpu.compile(case.model, options).source != model.source


@pytest.mark.parametrize("platform", RUNTIMES)
@pytest.mark.parametrize(("width", "rows"), [(8, 4), (16, 8)])
def test_attention_fills_the_registers_there_are(width: int, rows: int, platform: str) -> None:
    """Eight rows are two blocks where registers hold no sums of eight."""
    net, heads = Net(seed=1), Heads((2,), 8, 70, 32, 32, ())
    net.output(attention(net, heads, *(computed(net, shape) for shape in heads.shapes)))
    case, options = net.case(), tflgpu.Options(execution=tflgpu.Execution(kernels="cpu"), precision="fp32", cache="off")
    with limited(platform, Simulation({"vector_width": width})) as device:
        model = tflgpu.compile(case.model, options)
        case.check(model.run(case.inputs).values())
        plan = plan_of(case.model, device.target(options))
    (kernel,) = (planned.kernel for planned in plan.kernels if "attention" in planned.node.kind)
    assert vars(kernel.parameters)["rows"] == rows
