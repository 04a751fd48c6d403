"""A model whose kernels each need the one before."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tflgpu
from tflgpu.codegen.link import link
from tflgpu.codegen.persistent_kernel import render_persistent
from tflgpu.codegen.render import render
from tflgpu.compiler import plan_model
from tflgpu.model.writer import ModelBuilder
from tflgpu.runtime.executors.persistent_executor import PersistentExecutor
from tflgpu.runtime.opencl.build import build
from tflgpu.runtime.opencl.devices import choose
from tflgpu.runtime.opencl.session import open_session


def chain() -> bytes:
    """softmax(softmax(x) * mean(x)): kernels of which each needs the one before."""
    builder = ModelBuilder()
    x, product = builder.input((1, 4, 4, 8)), builder.tensor((1, 4, 4, 8))
    curve, mean, result = builder.tensor((1, 4, 4, 8)), builder.tensor((1, 1, 1, 8)), builder.tensor((1, 4, 4, 8))
    axes = builder.constant(np.array([1, 2], np.int32))
    builder.op("SOFTMAX", [x], [curve], {"beta": 1.0})
    builder.op("MEAN", [x, axes], [mean], {"keep_dims": True})
    builder.op("MUL", [curve, mean], [product], {"fused_activation_function": "NONE"})
    builder.op("SOFTMAX", [product], [result], {"beta": 1.0})
    return builder.finish([result])


def expected(x: np.ndarray) -> np.ndarray:
    def softmax(v: np.ndarray) -> np.ndarray:
        powers = np.exp(v - v.max(-1, keepdims=True))
        return powers / powers.sum(-1, keepdims=True)

    x = x.astype(np.float64)
    return softmax(softmax(x) * x.mean((1, 2), keepdims=True))


@pytest.fixture
def executor(device_name: str) -> PersistentExecutor:
    """On the kernels for GPUs, with a single work-group where that is all that surely runs at once."""
    options = tflgpu.Options(device=device_name, kernels="gpu", precision="fp32", executor="persistent")
    device = choose(device_name)
    _, plan = plan_model(chain(), options, device.target(options))
    source = render(plan)
    executable = link(plan, source.names)
    text, persistent = render_persistent(source, executable, ptx=False)
    session = open_session(device)
    return PersistentExecutor(replace(executable, persistent=persistent), build(text, session)[0], session)


X = np.random.default_rng(0).normal(size=(1, 4, 4, 8)).astype(np.float32)
