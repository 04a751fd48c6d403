"""Prepared runs of small models: the answers and the errors of all other runs, whatever came before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

import tflgpu
from tests.support.models import Builder

SHAPE = (1, 3, 4, 5)

A, B = (np.random.default_rng(seed).normal(size=SHAPE).astype(np.float32) for seed in (0, 1))


def network(inputs: int) -> bytes:
    """The names are ``a``, ``b``; ``sum``, ``less``. Of one input the outputs are twice its value, and zeros."""
    builder = Builder()
    given = [builder.input(SHAPE, name=name) for name in ("a", "b")[:inputs]]
    both = [given[0], given[-1]]
    return builder.finish([builder.add("ADD", both, SHAPE, name="sum"), builder.add("SUB", both, SHAPE, name="less")])


@pytest.fixture(params=[1, 2], ids="{} inputs".format)
def inputs(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def model(device_name: str, inputs: int) -> tflgpu.CompiledModel:
    options = tflgpu.Options(device=device_name, precision="fp32", execution=tflgpu.Execution(executor="claiming"))
    model = tflgpu.compile(network(inputs), options)
    assert model._runner._prepared is not None
    return model


def check(outputs: dict[str, Any], a: np.ndarray, b: np.ndarray) -> None:
    assert list(outputs) == ["sum", "less"]
    np.testing.assert_array_equal(outputs["sum"], a + b)
    np.testing.assert_array_equal(outputs["less"], a - b)


def test_inputs_may_be_given_in_any_way(model: tflgpu.CompiledModel, inputs: int) -> None:
    given, last = [A, B][:inputs], (A, B)[inputs - 1]
    named = dict(zip("ab", given, strict=False))
    ways: list[Any] = [given, named, tuple(given), [array.tolist() for array in given]]
    turned = [np.asfortranarray(array) for array in given]
    for way in (*ways, turned, *([A] if inputs == 1 else [])):
        check(model.run(way), A, last)
    for wrong in ([A, A, A], {"a": A, "c": A}, [A[0]] * inputs, [A.astype(np.int32)] * inputs, []):
        with pytest.raises(ValueError):
            model.run(wrong)
    check(model.run(given), A, last)


def test_other_runs_may_come_between(model: tflgpu.CompiledModel, inputs: int) -> None:
    given, last = [A, B][:inputs], (A, B)[inputs - 1]
    first = model.run(given)
    on_device = cl_array.empty(model.queue, SHAPE, np.float32)
    model.run([cl_array.to_device(model.queue, array) for array in given], {"sum": on_device, "less": np.empty_like(A)})
    check(model.run([B] * inputs), B, B)
    np.testing.assert_array_equal(on_device.get(), A + last)
    submission = model.enqueue(given)
    check(model.run([B] * inputs), B, B)
    check(submission.wait(), A, last)
    check(first, A, last)


def test_errors_are_those_of_other_runs(model: tflgpu.CompiledModel, inputs: int) -> None:
    def failing(arrays: Any) -> Any:
        raise cl.RuntimeError("OUT_OF_RESOURCES")

    prepared, model._runner._prepared = model._runner._prepared, failing
    with pytest.raises(tflgpu.DeviceError, match="failed while running the model: OUT_OF_RESOURCES"):
        model.run([A] * inputs)
    model._runner._prepared = prepared
    check(model.run([A] * inputs), A, A)
    model.close()
    with pytest.raises(ValueError, match="closed"):
        model.run([A] * inputs)
