"""Results that take the memory of an operand of the epilogue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from tests.kernels.gpu.ways import take_always
from tests.ops.case import Case
from tests.support.corrections import pack_always
from tests.support.fixed_cases import fixed_cases
from tests.support.planning import plan_of
from tests.support.shared_memory import stored_over, with_operands
from tests.support.side_by_side import can_be_joined, joined
from tests.support.targets import CPU, GPU
from tests.support.templates import kernel_templates, parameters_of_templates
from tflgpu.codegen.link import link
from tflgpu.codegen.render import render
from tflgpu.kernels.movement.scatter_kernel import ScatterColumnsParameters
from tflgpu.runtime.executors.launch_executor import LaunchExecutor
from tflgpu.runtime.opencl.build import build
from tflgpu.runtime.opencl.devices import choose
from tflgpu.runtime.opencl.session import Session, open_session
from tflgpu.target import Target

# Some kernels are worth their time on a GPU of one compute unit only.
TARGETS = CPU, replace(GPU, compute_units=1)


# Cases that need a way of planning which others shall not take.
OWN_WAYS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "convolutions_of_few_channels": lambda patch: take_always(patch, "kn2row"),
    "packed_convolution": pack_always,
}


def _check(cases: Sequence[Case], target: Target, session: Session, way: str = "") -> set[str]:
    """Run them as one program. Returns the templates whose kernels have stored over an operand."""
    with pytest.MonkeyPatch.context() as patch:
        OWN_WAYS.get(way, lambda _: None)(patch)
        plan = with_operands(plan_of(joined(case.model for case in cases), target))
    source = render(plan)
    executor = LaunchExecutor(link(plan, source.names), build(source.text, session)[0], session)
    outputs = iter(executor.run([x for case in cases for x in case.inputs]))
    for case in cases:
        case.check([next(outputs) for _ in case.expected])
    return {*stored_over(plan)}


def test_kernels_that_store_once_may_store_over_an_operand(device_name: str) -> None:
    """Every template that says so, on memory of which its epilogue reads an operand."""
    session, used, together = open_session(choose(device_name)), set[str](), list[Case]()
    for name, case in fixed_cases().items():
        if name not in OWN_WAYS and can_be_joined(case):
            together.append(case)
            continue
        for target in TARGETS:
            used |= _check([case], target, session, name)
    for target in TARGETS:
        used |= _check(together, target, session)
    assert used == {each.template for each in parameters_of_templates() if each.stores_once} & kernel_templates()


def test_a_kernel_that_says_so_wrongly_is_found(device_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that adds up in its output."""
    session, case = open_session(choose(device_name)), fixed_cases()["scattered"]
    monkeypatch.setattr(ScatterColumnsParameters, "stores_once", True)
    with pytest.raises(AssertionError, match="elements are wrong"):
        _check([case], CPU, session)
