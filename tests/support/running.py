"""Cases on a device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

import tflgpu
from tests.ops.case import Case
from tests.support.planning import plan_of
from tflgpu.codegen.link import link
from tflgpu.codegen.render import render
from tflgpu.codegen.whole_kernels import assemble
from tflgpu.kernels.request import Chooser
from tflgpu.plan import Plan
from tflgpu.runtime.executors.launch_executor import LaunchExecutor
from tflgpu.runtime.executors.persistent_executor import PersistentExecutor
from tflgpu.runtime.opencl.build import build
from tflgpu.runtime.opencl.devices import Device
from tflgpu.runtime.opencl.session import open_session

EXECUTION = ("executor", "kernels")


def run_checked(case: Case, **options: Any) -> str:
    """Run a case, and compare its outputs with those that it must give. Returns the source of its program.

    options: those of ``tflgpu.Options`` or ``tflgpu.Execution``; without a cache, and by default in fp32. What is wrong
    names them.
    """
    noted, chosen = replace(case, describe=f"{case.describe}; {options}"), options_of(**options)
    with tflgpu.compile(case.model, chosen) as compiled:
        noted.check(compiled.run(case.inputs).values(), chosen.precision)
        return compiled.source


def options_of(**options: Any) -> tflgpu.Options:
    """The arguments of :func:`run_checked` as options of tflgpu."""
    execution = tflgpu.Execution(**{name: options.pop(name) for name in EXECUTION if name in options})
    return tflgpu.Options(**{"precision": "fp32", "cache": "off", "execution": execution, **options})


def run_plan(plan: Plan, inputs: Sequence[NDArray[Any]], device: Device) -> list[NDArray[Any]]:
    """The outputs of a plan on a device, by the plan's executor, which is not a CPU's."""
    session, source = open_session(device), render(plan)
    text, executable = assemble(source, link(plan, source.names), plan.target)
    kind = PersistentExecutor if executable.persistent else LaunchExecutor
    return kind(executable, build(text, session)[0], session).run(inputs)


def run_chosen(case: Case, device: Device, options: tflgpu.Options, choose: Chooser, **changes: Any) -> Plan:
    """Run a case with the tiles that ``choose`` takes, and compare its outputs with those that it must give.

    changes: of what planning knows of the device.
    """
    plan = plan_of(case.model, replace(device.target(options), **changes), options, choose)
    case.check(run_plan(plan, case.inputs, device), options.precision)
    return plan
