"""Tensors besides inputs and outputs: those between operators, those of other subgraphs, and those stored sparsely."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter as LiteRT
from ai_edge_litert.interpreter import OpResolverType

import tflgpu
from tests.support.models import Builder
from tflgpu.fallback.schema_objects import packed, unpacked

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.tflite"
EITHER = [pytest.param(LiteRT, id="litert"), pytest.param(tflgpu.Interpreter, id="tflgpu")]


def with_every_tensor(content: bytes) -> tuple[Any, Any]:
    """Ours, and LiteRT's with kernels that leave every tensor as it was computed."""
    options = tflgpu.Options(precision="fp32")
    resolver = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    theirs = LiteRT(
        model_content=content, experimental_preserve_all_tensors=True, experimental_op_resolver_type=resolver
    )
    return tflgpu.Interpreter(model_content=content, experimental_preserve_all_tensors=True, options=options), theirs


@pytest.mark.quick(when=lambda name: name == "digits")
@pytest.mark.parametrize("name", ["digits", "dtln_model_1", "face_detection_short_range"])
def test_every_tensor_has_the_value_that_litert_computes(shared: Path, name: str) -> None:
    path = DIGITS if name == "digits" else shared / "models" / f"{name}.tflite"
    both = with_every_tensor(path.read_bytes())
    for interpreter in both:
        interpreter.allocate_tensors()
        random = np.random.default_rng(0)
        for detail in interpreter.get_input_details():
            interpreter.set_tensor(detail["index"], random.random(detail["shape"], np.float32))
        interpreter.invoke()
    ours, theirs = both
    computed = [t for operator in theirs._get_ops_details() for t in operator["outputs"]]
    assert len(computed) > 10
    for index in computed:
        expected = theirs.get_tensor(index)
        scale = float(np.abs(expected).max(initial=1e-3))
        np.testing.assert_allclose(ours.get_tensor(index), expected, rtol=0, atol=1e-4 * scale)
        assert ours._get_tensor_details(index, 0)["shape"].tolist() == list(expected.shape)


def test_tensors_without_names_of_their_own_are_preserved() -> None:
    builder = Builder()
    x = builder.input((1, 4))
    y, z = (builder.tensor((1, 4), name="same") for _ in range(2))
    builder.op("ABS", [x], [y])
    builder.op("NEG", [y], [z])
    total = builder.add("ADD", [y, z], (1, 4), name="")
    ours, theirs = with_every_tensor(builder.finish([total]))
    for interpreter in (ours, theirs):
        interpreter.allocate_tensors()
        interpreter.set_tensor(x, np.array([[1, -2, 3, -4]], np.float32))
        interpreter.invoke()
    for tensor in (y, z, total):
        np.testing.assert_array_equal(ours.get_tensor(tensor), theirs.get_tensor(tensor))


@pytest.mark.parametrize("name", ["trained_lstm", "keras_lstm_mnist_ptq"])
def test_the_state_of_an_lstm_can_be_read(shared: Path, name: str) -> None:
    ours, theirs = with_every_tensor((shared / "models" / f"{name}.tflite").read_bytes())
    states = [t.index for t in ours._model.subgraphs[0].tensors if t.is_variable]
    assert len(states) == 2
    random = np.random.default_rng(0)
    for interpreter in (ours, theirs):
        interpreter.allocate_tensors()
    for _ in range(3):
        detail = theirs.get_input_details()[0]
        value = (255 * random.random(detail["shape"])).astype(detail["dtype"])
        for interpreter in (ours, theirs):
            interpreter.set_tensor(detail["index"], value)
            interpreter.invoke()
        for state in states:
            got, expected = (i.get_tensor(state).astype(np.float64) for i in (ours, theirs))
            np.testing.assert_allclose(got, expected, rtol=0, atol=0.02 * np.abs(expected).max())
    for interpreter in (ours, theirs):
        interpreter.reset_all_variables()
    for state in states:
        np.testing.assert_array_equal(ours.get_tensor(state), theirs.get_tensor(state))


def test_what_is_not_preserved_says_how_to_get_it() -> None:
    interpreter = tflgpu.Interpreter(DIGITS)
    interpreter.allocate_tensors()
    with pytest.raises(ValueError, match="experimental_preserve_all_tensors=True"):
        interpreter.get_tensor(1)
    interpreter.set_tensor(1, np.ones((1, 8, 8, 16), np.float32))
    assert interpreter.get_tensor(1).all()
    interpreter.invoke()  # which computes its own
    with pytest.raises(ValueError, match="experimental_preserve_all_tensors=True"):
        interpreter.get_tensor(1)


def two_signatures() -> bytes:
    """The main subgraph negates x; a second one, of two operators, gives |x + 1|."""
    builder, other = Builder(), Builder()
    x = builder.input((1, 4), name="x")
    y = builder.add("NEG", [x], (1, 4), name="y")
    given, one = other.input((1, 4), name="x"), other.constant(np.ones(1, np.float32))
    total = other.add("ADD", [given, one], (1, 4))
    result = other.add("ABS", [total], (1, 4), name="y")
    builder.subgraph(other, [result])
    model = unpacked(builder.finish([y], signature="negate"))
    second = unpacked(builder.finish([y], signature="shift")).signatureDefs[0]
    second.subgraphIndex, second.outputs[0].tensorIndex = 1, result
    model.signatureDefs.append(second)
    return packed(model)


@pytest.mark.parametrize("kind", EITHER)
def test_subgraphs_have_tensors_of_their_own(kind: Callable[..., Any]) -> None:
    interpreter = kind(model_content=two_signatures())
    with pytest.raises(ValueError, match="2 Signatures"):
        interpreter.get_signature_runner()
    assert [d["name"] for d in interpreter.get_tensor_details(1)] == ["x", "constant_1", "tensor_2", "y"]
    shift = interpreter.get_signature_runner("shift")
    with pytest.raises(ValueError, match="allocate_tensors"):
        interpreter.get_tensor(3, 1)
    x = np.array([[1, -2, 3, -4], [5, 6, 7, -8]], np.float32)
    np.testing.assert_array_equal(shift(x=x)["y"], abs(x + 1))
    np.testing.assert_array_equal(interpreter.get_tensor(0, 1), x)
    np.testing.assert_array_equal(interpreter.get_tensor(3, subgraph_index=1), abs(x + 1))
    assert shift.get_output_details()["y"]["shape"].tolist() == [2, 4]
    with pytest.raises(ValueError, match="allocate_tensors"):
        interpreter.get_tensor(0)
    np.testing.assert_array_equal(interpreter.get_signature_runner("negate")(x=x)["y"], -x)
    np.testing.assert_array_equal(interpreter.get_tensor(0), x)  # the main subgraph is this signature's


def blocks() -> bytes:
    """A matrix of 4 x 4, whose upper right and lower left blocks of 2 x 2 are stored."""
    builder = Builder()
    x, weights = builder.input((1, 4)), builder.constant(np.zeros((2, 4), np.float32))
    dense = builder.add("DENSIFY", [weights], (4, 4))
    y = builder.add("FULLY_CONNECTED", [x, dense, -1], (1, 4))
    model = unpacked(builder.finish([y]))
    graph = model.subgraphs[0]
    graph.tensors[weights].shape = [4, 4]
    model.buffers[graph.tensors[weights].buffer].data = np.arange(1, 9, dtype=np.float32).view(np.uint8)
    sparsity = schema.SparsityParametersT()
    sparsity.traversalOrder, sparsity.blockMap, sparsity.dimMetadata = [0, 1, 2, 3], [0, 1], []
    for size in (2, None, 2, 2):
        level = schema.DimensionMetadataT()
        if size is None:
            level.format = schema.DimensionType.SPARSE_CSR
            for name, values in (("array_segments", [0, 1, 2]), ("array_indices", [1, 0])):
                vector = schema.Uint8VectorT()
                vector.values = np.array(values, np.uint8)
                field = "".join(word.title() for word in name.split("_"))
                setattr(level, field[0].lower() + field[1:], vector)
                setattr(level, field[0].lower() + field[1:] + "Type", schema.SparseIndexVector.Uint8Vector)
        else:
            level.denseSize = size
        sparsity.dimMetadata.append(level)
    graph.tensors[weights].sparsity = sparsity
    return packed(model)


def test_a_sparse_constant_is_described_and_read_as_it_is_stored() -> None:
    both = [kind(model_content=blocks()) for kind in (tflgpu.Interpreter, LiteRT)]
    ours, theirs = (interpreter._get_tensor_details(1, 0)["sparsity_parameters"] for interpreter in both)
    assert repr(ours) == repr(theirs)
    assert "block_map" in ours
    for interpreter in both:
        np.testing.assert_array_equal(interpreter.get_tensor(1), np.arange(1, 9))
