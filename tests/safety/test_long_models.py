"""Models of many operators: what is compiled for them grows with their number, and no kernel is larger for it."""

from __future__ import annotations

import numpy as np
import pytest

import tflgpu
from tests.support.models import Builder
from tests.support.planning import plan_of
from tests.support.targets import CPU
from tflgpu.codegen import render
from tflgpu.compiler import compile_model
from tflgpu.frontend.partition import MOST_PARTITIONS
from tflgpu.options import CpuPart, Options
from tflgpu.passes.fuse import MAX_EPILOGUE
from tflgpu.runtime.opencl import build

SHAPE = (1, 4, 4, 4)


def chain(*codes: str) -> bytes:
    """Elementwise operators one behind the other."""
    builder = Builder()
    x = builder.input(SHAPE)
    for code in codes:
        x = builder.add(code, [x, x] if code == "ADD" else [x], SHAPE)
    return builder.finish([x])


def test_a_long_chain_is_several_equal_kernels(device_name: str) -> None:
    count = 600
    model = tflgpu.compile(chain(*["ABS"] * count), Options(device=device_name, fallback="forbid"))
    assert model.report.kernels == -(-count // MAX_EPILOGUE)
    assert model.source.count("__kernel") <= 3  # the first, those between, and the last
    x = np.random.default_rng(0).standard_normal(SHAPE, np.float32)
    (y,) = model.run(x).values()
    np.testing.assert_array_equal(y, np.abs(x))


def test_no_epilogue_is_longer_for_shared_sources() -> None:
    """``x + x`` reads its source twice, and LOGISTIC and MUL of one tensor become one node."""
    plan = plan_of(chain(*["ADD", "LOGISTIC"] * 40), CPU)
    assert max(len(kernel.epilogue) for kernel in plan.kernels) == MAX_EPILOGUE


def test_a_concatenation_of_many_inputs_is_several(device_name: str) -> None:
    """A kernel has room for 60 arguments on every device."""
    builder = Builder()
    inputs = [builder.input((1, 3)) for _ in range(200)]
    y = builder.add("CONCATENATION", inputs, (1, 600), axis=1, fused_activation_function="RELU")
    z = builder.add("PACK", inputs, (200, 1, 3), axis=0, values_count=200)
    model = tflgpu.compile(builder.finish([y, z]), Options(device=device_name, fallback="forbid"))
    values = list(np.random.default_rng(0).standard_normal((200, 1, 3), np.float32))
    joined, packed = model.run(values).values()
    np.testing.assert_array_equal(joined, np.maximum(np.concatenate(values, 1), 0))
    np.testing.assert_array_equal(packed, values)


def test_too_many_different_kernels_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render, "MOST_KERNELS", 1)
    model = chain(*["ABS"] * (MAX_EPILOGUE + 1))
    with pytest.raises(tflgpu.UnsupportedError, match="2 different kernels, and at most 1 are compiled"):
        compile_model(model, Options(), CPU)


def test_too_many_launches_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render, "MOST_LAUNCHES", 2)
    model = chain(*["ABS"] * (2 * MAX_EPILOGUE + 1))
    with pytest.raises(tflgpu.UnsupportedError, match="3 launches of kernels, and at most 2 are planned"):
        compile_model(model, Options(), CPU)


def test_too_many_pieces_are_refused() -> None:
    model = chain(*["ABS", "NEG"] * MOST_PARTITIONS)
    with pytest.raises(tflgpu.UnsupportedError, match=f"more than {MOST_PARTITIONS} pieces"):
        compile_model(model, Options(cpu_part=CpuPart(operators=["NEG"])), CPU)


def test_equal_pieces_share_a_program(device_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sources: list[str] = []
    compiled = build._compiled
    monkeypatch.setattr(
        build, "_compiled", lambda *given, **named: sources.append(given[0]) or compiled(*given, **named)
    )
    options = Options(device=device_name, cpu_part=CpuPart(operators=["NEG"]), cache="off")
    with pytest.warns(tflgpu.FallbackWarning):
        model = tflgpu.compile(chain(*["ABS", "NEG"] * 5), options)
    assert model.report.partitions == 5
    assert len(sources) == len(set(sources)) == 1
    x = np.ones(SHAPE, np.float32)
    (y,) = model.run(x).values()
    np.testing.assert_array_equal(y, -x)
