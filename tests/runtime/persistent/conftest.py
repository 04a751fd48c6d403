"""A persistent executor."""

from __future__ import annotations

from dataclasses import replace

import pytest

import tflgpu
from tests.runtime.persistent.chains import chain
from tests.support.planning import plan_of
from tflgpu.codegen.link import link
from tflgpu.codegen.render import render
from tflgpu.codegen.whole_kernels import render_persistent
from tflgpu.runtime.executors.persistent_executor import PersistentExecutor
from tflgpu.runtime.opencl.build import build
from tflgpu.runtime.opencl.devices import choose
from tflgpu.runtime.opencl.session import open_session


@pytest.fixture
def executor(device_name: str) -> PersistentExecutor:
    """On the kernels for GPUs, with a single work-group where that is all that surely runs at once."""
    options = tflgpu.Options(
        device=device_name, execution=tflgpu.Execution(kernels="gpu", executor="persistent"), precision="fp32"
    )
    device = choose(device_name)
    plan = plan_of(chain(), device.target(options))
    source = render(plan)
    executable = link(plan, source.names)
    text, persistent = render_persistent(source, executable, ptx=False)
    session = open_session(device)
    return PersistentExecutor(replace(executable, persistent=persistent), build(text, session)[0], session)
