"""Composites: their decompositions become a part of the graph, and files whose composites cannot be are told why."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from flatbuffers import flexbuffers

import tflgpu
from tests.support.litert import run
from tests.support.models import Builder
from tests.support.planning import graph_of, obstacles_of
from tflgpu.errors import ModelError
from tflgpu.options import Options, Shapes

FORBID = Options(fallback="forbid", cache="off", precision="fp32")


def composite(model: Builder, inputs: list[int], subgraph: int, shape: tuple[int, ...], dtype: str = "float32") -> int:
    output = model.tensor(shape, dtype)
    model.op("STABLEHLO_COMPOSITE", inputs, [output], decomposed_by(subgraph))
    return output


def decomposed_by(subgraph: int) -> dict[str, object]:
    """The options of a composite. Attributes are a map of FlexBuffers, here without entries."""
    attributes = list(flexbuffers.Dumps({}))
    return {"name": "odml.any", "decomposition_subgraph_index": subgraph, "composite_attributes": attributes}


def scaled_rows(model: Builder, shape: tuple[int, ...], *, called: int | None = None) -> int:
    """A subgraph of ``y = w * x / sum(x * x)``, whose result goes through the composite ``called``."""
    inner = Builder(seed=3)
    x, w = inner.input(shape), inner.input(shape[-1:])
    axis = inner.ints([len(shape) - 1])
    total = inner.add("SUM", [inner.add("MUL", [x, x], shape), axis], (*shape[:-1], 1), keep_dims=True)
    y = inner.add("DIV", [inner.add("MUL", [x, w], shape), total], shape)
    if called is not None:
        y = composite(inner, [y, w], called, shape)
    return model.subgraph(inner, [y])


def calls(shape: tuple[int, ...] = (2, 3, 8)) -> bytes:
    """Two calls of one decomposition, which calls another, with one constant."""
    model = Builder()
    x, w = model.input(shape), model.weights(shape[-1])
    inner = scaled_rows(model, shape)
    outer = scaled_rows(model, shape, called=inner)
    y = composite(model, [composite(model, [x, w], outer, shape), w], outer, shape)
    return model.finish([model.add("ADD", [y, x], shape)])


def test_decompositions_are_inlined(device_name: str) -> None:
    data = calls()
    x = np.random.default_rng(0).standard_normal((2, 3, 8)).astype(np.float32)
    compiled = tflgpu.compile(data, Options(fallback="forbid", cache="off", precision="fp32", device=device_name))
    ((name, right),) = run(data, x).items()
    np.testing.assert_allclose(compiled.run([x])[name], right, rtol=1e-5, atol=1e-6 * np.abs(right).max())
    assert [o.code for o in compiled.report.operators] == ["STABLEHLO_COMPOSITE", "STABLEHLO_COMPOSITE", "ADD"]


def test_results_may_be_inputs_and_constants() -> None:
    """A value that a decomposition only passes on is a value of the caller."""
    model, inner = Builder(), Builder()
    given, constant = inner.input((4,)), inner.constant(np.arange(4, dtype=np.float32))
    number = model.subgraph(inner, [given, constant])
    x, outputs = model.input((4,)), [model.tensor((4,)), model.tensor((4,))]
    model.op("STABLEHLO_COMPOSITE", [x], outputs, decomposed_by(number))
    compiled = tflgpu.compile(model.finish(outputs), FORBID)
    first, second = compiled.run([np.float32([4, 3, 2, 1])]).values()
    assert first.tolist() == [4, 3, 2, 1]
    assert second.tolist() == [0, 1, 2, 3]


def test_other_shapes_than_those_of_the_file() -> None:
    """The shape of a RESHAPE in a decomposition has the file's batch, which is another one here."""
    model, inner = Builder(), Builder()
    x = inner.input((1, 4, 6))
    flat = inner.add("RESHAPE", [x, inner.ints([1, 24])], (1, 24), new_shape=[1, 24])
    y = inner.add("RESHAPE", [inner.add("NEG", [flat], (1, 24))], (1, 4, 6), new_shape=[1, 4, 6])
    number = model.subgraph(inner, [y])
    data = model.finish([composite(model, [model.input((1, 4, 6))], number, (1, 4, 6))])
    given = np.random.default_rng(1).standard_normal((3, 4, 6)).astype(np.float32)
    compiled = tflgpu.compile(data, Options(fallback="forbid", cache="off", precision="fp32", shapes=Shapes(batch=3)))
    (found,) = compiled.run([given]).values()
    np.testing.assert_array_equal(found, -given)


@pytest.mark.parametrize("name", ["group_norm", "l2_norm"])
def test_files_of_litert(name: str, shared: Path) -> None:
    """Test data of LiteRT."""
    data = (shared / "faults" / f"composite_{name}.tflite").read_bytes()
    compiled = tflgpu.compile(data, FORBID)
    x = np.random.default_rng(2).standard_normal(compiled.inputs[0].shape).astype(np.float32)
    (found,), (right,) = compiled.run([x]).values(), run(data, x).values()
    np.testing.assert_allclose(found, right, rtol=0, atol=1e-5 * np.abs(right).max())


def test_recursion_is_refused() -> None:
    model, inner = Builder(), Builder()
    number = model.subgraph(inner, [composite(inner, [inner.input((4,))], 1, (4,))])
    data = model.finish([composite(model, [model.input((4,))], number, (4,))])
    with pytest.raises(ModelError, match="STABLEHLO_COMPOSITE calls subgraph 1, which leads back to itself"):
        tflgpu.compile(data)


def test_a_missing_decomposition_is_refused() -> None:
    model = Builder()
    data = model.finish([composite(model, [model.input((4,))], 3, (4,))])
    with pytest.raises(ModelError, match="STABLEHLO_COMPOSITE calls subgraph 3; the model has 1"):
        tflgpu.compile(data)


def test_a_decomposition_of_other_inputs_is_refused() -> None:
    model, inner = Builder(), Builder()
    number = model.subgraph(inner, [inner.add("ADD", [inner.input((4,)), inner.input((4,))])])
    data = model.finish([composite(model, [model.input((4,))], number, (4,))])
    with pytest.raises(ModelError, match="has 1 inputs and 1 outputs, and its decomposition, subgraph 1, has 2 and 1"):
        tflgpu.compile(data)


def test_obstacles_of_decompositions_are_those_of_composites() -> None:
    model, inner, whole = Builder(), Builder(), Builder()
    number = model.subgraph(inner, [inner.add("COMPLEX_ABS", [inner.input((4,), "complex64")], (4,))])
    first = composite(model, [model.input((4,), "complex64")], number, (4,))
    second = model.subgraph(whole, [whole.input((4,), "int32")])
    data = model.finish([first, composite(model, [model.input((4,))], second, (4,), "int32")])
    assert "in its decomposition, operator 0 COMPLEX_ABS: input 0 holds complex numbers that" in obstacles_of(data)
    assert "of its decomposition hold different types" in obstacles_of(data)


def test_nothing_is_left_of_a_composite_that_cannot_be_inlined() -> None:
    model, inner = Builder(), Builder()
    y = inner.add("NEG", [inner.input((4,))], (4,))
    number = model.subgraph(inner, [inner.add("COMPLEX_ABS", [inner.add("CAST", [y], (4,), "complex64")], (4,))])
    x = model.input((4,))
    composite(model, [x], number, (4,))
    assert [node.kind for node in graph_of(model.finish([model.add("ABS", [x], (4,))])).nodes] == ["map"]
