"""Results that take the memory of an operand of the epilogue."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.kernels.gpu.ways import take_always
from tests.ops.case import Case
from tests.support.corrections import pack_always
from tests.support.fixed_cases import fixed_cases
from tests.support.planning import plan_of
from tests.support.shared_memory import stored_over, with_operands
from tests.support.targets import CPU, GPU
from tests.support.templates import kernel_templates, parameters_of_templates
from tflgpu.codegen.link import link
from tflgpu.codegen.render import render
from tflgpu.kernels.movement.scatter_kernel import ScatterColumnsParameters
from tflgpu.plan import Plan
from tflgpu.runtime.executors.launch_executor import LaunchExecutor
from tflgpu.runtime.opencl.build import build
from tflgpu.runtime.opencl.devices import choose
from tflgpu.runtime.opencl.session import Session, open_session
from tflgpu.target import Target

# Some kernels are worth their time on a GPU of one compute unit only.
TARGETS = CPU, replace(GPU, compute_units=1)


def _plan(name: str, case: Case, target: Target) -> Plan:
    with pytest.MonkeyPatch.context() as patch:
        if name == "convolutions_of_few_channels":
            take_always(patch, "kn2row")
        if name == "packed_convolution":
            pack_always(patch)
        return with_operands(plan_of(case.model, target))


def _check(plan: Plan, case: Case, session: Session) -> None:
    source = render(plan)
    case.check(LaunchExecutor(link(plan, source.names), build(source.text, session)[0], session).run(case.inputs))


def test_kernels_that_store_once_may_store_over_an_operand(device_name: str) -> None:
    """Every template that says so, on memory of which its epilogue reads an operand."""
    session, used = open_session(choose(device_name)), set[str]()
    for target in TARGETS:
        for name, case in fixed_cases().items():
            plan = _plan(name, case, target)
            used |= set(stored_over(plan))
            _check(plan, case, session)
    assert used == {each.template for each in parameters_of_templates() if each.stores_once} & kernel_templates()


def test_a_kernel_that_says_so_wrongly_is_found(device_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that adds up in its output."""
    session, case = open_session(choose(device_name)), fixed_cases()["scattered"]
    monkeypatch.setattr(ScatterColumnsParameters, "stores_once", True)
    with pytest.raises(AssertionError, match="elements are wrong"):
        _check(_plan("scattered", case, CPU), case, session)
