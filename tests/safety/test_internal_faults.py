"""A fault that nobody foresaw becomes an InternalError that names the place, and an error of OpenCL a DeviceError."""

from __future__ import annotations

import ast
import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyopencl as cl
import pytest

import tflgpu
from tests.conftest import missing
from tests.support.models import Builder
from tests.support.targets import CPU
from tflgpu.compiler import compile_model
from tflgpu.ops.declaration import REGISTRY
from tflgpu.passes import pipeline
from tflgpu.runtime.executors.launch_executor import LaunchExecutor

PACKAGE = Path(tflgpu.__file__).parent


def softmax_of_negative() -> bytes:
    builder = Builder()
    x = builder.input((1, 4), name="x")
    negative = builder.add("NEG", [x], (1, 4))
    return builder.finish([builder.add("SOFTMAX", [negative], (1, 4), name="y", beta=1.0)])


def stumble(*_: Any, **__: Any) -> NoReturn:
    raise KeyError("lost")


def compiled_without_device() -> None:
    compile_model(softmax_of_negative(), tflgpu.Options(), CPU)


@pytest.mark.parametrize("part", ["reasons", "emit"])
def test_a_fault_in_a_declaration_names_the_operator(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REGISTRY, "SOFTMAX", replace(REGISTRY["SOFTMAX"], **{part: stumble}))
    with pytest.raises(tflgpu.InternalError, match="while lowering operator 1 SOFTMAX: KeyError: 'lost'") as found:
        compiled_without_device()
    assert isinstance(found.value.__cause__, KeyError)
    assert "tflgpu show MODEL --stage model" in str(found.value)
    assert str(pickle.loads(pickle.dumps(found.value))) == str(found.value)


@pytest.mark.parametrize(
    ("function", "where"),
    [
        ("tflgpu.frontend.partition.partition", "cutting the model into partitions"),
        ("tflgpu.plan.planning.lower_node", "planning the map of operator 0: "),
        ("tflgpu.plan.planning.placement", "planning"),
        ("tflgpu.codegen.render._function", "rendering the map of operator 0: "),
        ("tflgpu.codegen.link._Memory", "giving kernels their memory"),
        ("tflgpu.report.describe.advise", "describing what became of the model"),
    ],
)
def test_a_fault_in_a_stage_names_the_stage(function: str, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(function.replace("partition.partition", "frontend.partition"), stumble)
    options = tflgpu.Options(cpu_part=tflgpu.CpuPart(operators=["NEG"] if "cutting" in where else []))
    with pytest.raises(tflgpu.InternalError, match=f"while {where}"):
        compile_model(softmax_of_negative(), options, CPU)


def test_a_graph_that_breaks_a_rule_names_the_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "PASSES", {"forgetful": lambda graph: graph.with_nodes(graph.nodes[:0])})
    with pytest.raises(tflgpu.InternalError, match="the pass forgetful: AssertionError: an output of the graph"):
        compiled_without_device()


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
def test_what_concerns_the_process_passes(error: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    def end(*_: object) -> NoReturn:
        raise error

    monkeypatch.setattr("tflgpu.plan.planning.lower_node", end)
    with pytest.raises(error):
        compiled_without_device()


@pytest.fixture(scope="module")
def model() -> tflgpu.CompiledModel:
    if not tflgpu.devices():
        missing("an OpenCL device")
    return tflgpu.compile(
        softmax_of_negative(), tflgpu.Options(execution=tflgpu.Execution(executor="launch"), cache="off")
    )


X = np.zeros((1, 4), np.float32)


@pytest.mark.device
@pytest.mark.parametrize(
    ("method", "call"),
    [
        ("_start_silently", lambda model: model.run(X)),
        ("_measure", lambda model: model.profile(X)),
        ("reset_state", lambda model: model.reset_state()),
    ],
)
def test_a_failing_device_is_a_device_error(
    method: str, call: Callable[[Any], None], model: tflgpu.CompiledModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> NoReturn:
        raise cl.RuntimeError("out of resources")

    monkeypatch.setattr(LaunchExecutor, method, fail)
    with pytest.raises(tflgpu.DeviceError, match=r"failed while running the model: .*out of resources"):
        call(model)


@pytest.mark.device
def test_a_device_that_fails_at_the_start_is_a_device_error(
    model: tflgpu.CompiledModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> NoReturn:
        raise cl.LogicError("invalid kernel arguments")

    monkeypatch.setattr(LaunchExecutor, "_bind", fail)
    with pytest.raises(tflgpu.DeviceError, match=r"failed while preparing the model: .*invalid kernel arguments"):
        tflgpu.compile(softmax_of_negative(), model.options)


def narrowings(condition: ast.expr) -> Iterator[bool]:
    """Whether each part of a condition only tells mypy a type: ``x is not None`` or ``isinstance(x, C)``."""
    match condition:
        case ast.BoolOp(ast.And(), parts):
            for part in parts:
                yield from narrowings(part)
        case ast.Compare(_, [ast.IsNot()], [ast.Constant(None)]) | ast.Call(ast.Name("isinstance")):
            yield True
        case _:
            yield False


def test_asserts_only_narrow_types() -> None:
    """Python -O drops them, and must change nothing."""
    trees = {module: ast.walk(ast.parse(module.read_text())) for module in PACKAGE.rglob("*.py")}
    asserts = [(module, node) for module, nodes in trees.items() for node in nodes if isinstance(node, ast.Assert)]
    assert [f"{module}:{node.lineno}" for module, node in asserts if not all(narrowings(node.test))] == []
