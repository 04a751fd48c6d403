"""Facts that LiteRT's kernels take for granted are checked when a file is read; errors name the operator or the
tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.frontend.detectors import detector
from tests.support.models import Builder
from tflgpu.errors import ModelError
from tflgpu.model.reader import read_model

pytest.importorskip("ai_edge_litert")

from ai_edge_litert import schema_py_generated as schema

from tflgpu.fallback.schema_objects import packed, unpacked

Edit = Callable[[Any], None]  # of a file's first subgraph


def joined() -> bytes:
    """COS, a WHILE that goes through no times, an ADD of a constant, and a convolution."""
    builder, condition, body = Builder(), Builder(), Builder()
    given = condition.input((1, 4, 4, 1))
    again = condition.add("LESS", [condition.constant(np.float32(1)), condition.constant(np.float32(0))], (), "bool")
    given = body.input((1, 4, 4, 1))
    half = body.add("MUL", [given, body.constant(np.float32(0.5))], (1, 4, 4, 1))
    numbers = {"cond_subgraph_index": builder.subgraph(condition, [again])}
    numbers["body_subgraph_index"] = builder.subgraph(body, [half])
    t = [builder.input((1, 4, 4, 1)), *(builder.tensor((1, 4, 4, 1)) for _ in range(4))]
    builder.op("COS", t[0:1], t[1:2])
    builder.op("WHILE", t[1:2], t[2:3], numbers)
    builder.op("ADD", [t[2], builder.constant(np.ones((1, 4, 4, 1), np.float32))], t[3:4])
    filters = builder.constant(np.ones((1, 1, 1, 1), np.float32)), builder.constant(np.ones(1, np.float32))
    builder.op("CONV_2D", [t[3], *filters], t[4:5], {"stride_w": 1, "stride_h": 1})
    return builder.finish(t[4:5])


def _constant(graph: Any) -> Any:
    """The tensor that the ADD adds."""
    return graph.tensors[graph.operators[2].inputs[1]]


def _typed(kind: int) -> Edit:
    return lambda graph: setattr(_constant(graph), "type", kind)


def _input(number: int, position: int, tensor: int) -> Edit:
    def edit(graph: Any) -> None:
        inputs = list(graph.operators[number].inputs)
        inputs[position] = tensor
        graph.operators[number].inputs = inputs

    return edit


def _sparse(order: list[int]) -> Edit:
    def edit(graph: Any) -> None:
        levels = [schema.DimensionMetadataT() for _ in order]
        for level, size in zip(levels, (1, 4, 4, 1), strict=True):
            level.denseSize = size
        _constant(graph).sparsity = schema.SparsityParametersT()
        _constant(graph).sparsity.traversalOrder, _constant(graph).sparsity.dimMetadata = order, levels

    return edit


def _options(number: int, table: str) -> Edit:
    def edit(graph: Any) -> None:
        graph.operators[number].builtinOptions = getattr(schema, f"{table}T")()
        graph.operators[number].builtinOptionsType = getattr(schema.BuiltinOptions, table)

    return edit


def _quantized(scale: float, zero_point: int) -> Edit:
    def edit(graph: Any) -> None:
        tensor = graph.tensors[graph.operators[2].outputs[0]]
        tensor.type, tensor.quantization = schema.TensorType.INT8, schema.QuantizationParametersT()
        tensor.quantization.scale, tensor.quantization.zeroPoint = [scale], [zero_point]

    return edit


def _split(parts: int) -> Edit:
    """The ADD becomes a SPLIT: the file has no other operator with its code."""

    def edit(graph: Any) -> None:
        _options(2, "SplitOptions")(graph)
        graph.operators[2].builtinOptions.numSplits = parts
        graph.operators[2].opcodeIndex = 6  # which the test adds

    return edit


EDITS: dict[str, tuple[Edit, str]] = {
    "absent": (_input(0, 0, -1), "operator 0 COS is not given its input 0, which it needs"),
    "absent later": (_input(2, 1, -1), "operator 2 ADD is not given its input 1"),
    "out of range": (_input(2, 1, 99), r"inputs of operator 2 ADD name tensors \[99\]"),
    "too few inputs": (lambda g: setattr(g.operators[3], "inputs", [3]), "operator 3 CONV_2D has 1 inputs; at least 2"),
    "no outputs": (lambda g: setattr(g.operators[0], "outputs", []), "operator 0 COS has 0 outputs; at least 1"),
    "intermediates": (
        lambda g: setattr(g.operators[2], "intermediates", [7, 70]),
        "intermediate tensors of operator 2",
    ),
    "other options": (_options(3, "AddOptions"), "operator 3 CONV_2D has options of type AddOptions; Conv2DOptions"),
    "zero point outside": (_quantized(0.5, 1 << 30), "is int8 with the zero point 1073741824"),
    "more parts": (_split(3), "operator 2 SPLIT has 1 outputs, but its option num_splits is 3"),
    "calls itself": (
        lambda g: setattr(g.operators[1].builtinOptions, "bodySubgraphIndex", 0),
        "subgraph 0, operator 1 WHILE calls subgraph 0, which leads back to itself",
    ),
    "calls nothing": (
        lambda g: setattr(g.operators[1].builtinOptions, "condSubgraphIndex", 7),
        "subgraph 0, operator 1 WHILE calls subgraph 7; the model has 3",
    ),
    "int4": (_typed(schema.TensorType.INT4), "has 64 bytes of data, which is not what shape .* of int4 needs"),
    "bfloat16": (_typed(schema.TensorType.BFLOAT16), "has 64 bytes of data, which is not what"),
    "strings": (_typed(schema.TensorType.STRING), "has 64 bytes of data that are not 16 strings"),
    "variant": (_typed(schema.TensorType.VARIANT), "is a variant with a value"),
    "resource": (_typed(schema.TensorType.RESOURCE), "is a resource with a value"),
    "short buffer": (lambda g: setattr(_constant(g), "shape", [1, 4, 4, 2]), "has 64 bytes of data, but shape"),
    "negative shape": (lambda g: setattr(_constant(g), "shape", [1, -4, -4, 1]), "none negative"),
    "sparse twice": (_sparse([0, 1, 1, 3]), "an index of dimensions that it does not have"),
    "sparse elsewhere": (_sparse([0, 1, 2, -1]), "an index of dimensions that it does not have"),
}


@pytest.mark.parametrize("name", EDITS)
def test_contradictions_are_refused(name: str) -> None:
    edit, words = EDITS[name]
    file = unpacked(joined())
    file.operatorCodes.append(schema.OperatorCodeT())
    file.operatorCodes[-1].deprecatedBuiltinCode = file.operatorCodes[-1].builtinCode = schema.BuiltinOperator.SPLIT
    edit(file.subgraphs[0])
    with pytest.raises(ModelError, match=words):
        read_model(packed(file))


def test_what_is_right_is_read() -> None:
    """The file that the edits damage, a sparse constant, and strings."""
    read_model(joined())
    file = unpacked(joined())
    _sparse([0, 1, 2, 3])(file.subgraphs[0])
    read_model(packed(file))
    file = unpacked(joined())
    places = 72 + np.arange(17, dtype=np.int32)
    data = np.concatenate([np.array([16], np.int32), places]).tobytes() + bytes(16)
    _typed(schema.TensorType.STRING)(file.subgraphs[0])
    file.buffers[_constant(file.subgraphs[0]).buffer].data = np.frombuffer(data, np.uint8)
    read_model(packed(file))


def test_two_subgraphs_cannot_call_each_other() -> None:
    builder = Builder()
    x = builder.input((1,))
    for number in (2, 1):
        called = Builder()
        given = called.input((1,))
        result = called.add("CALL", [given], (1,), subgraph=number)
        builder.subgraph(called, [result])
    y = builder.add("CALL", [x], (1,), subgraph=1)
    with pytest.raises(ModelError, match=r"subgraph [12], operator 0 CALL calls subgraph [12], which leads back to"):
        read_model(builder.finish([y]))


def test_calls_are_not_too_deep() -> None:
    builder = Builder()
    x = builder.input((1,))
    for number in range(200):
        called = Builder()
        given = called.input((1,))
        result = called.add(
            "CALL" if number < 199 else "ABS", [given], (1,), **({"subgraph": number + 2} if number < 199 else {})
        )
        builder.subgraph(called, [result])
    y = builder.add("CALL", [x], (1,), subgraph=1)
    with pytest.raises(ModelError, match="leads to calls of subgraphs that are 65 deep"):
        read_model(builder.finish([y]))


@pytest.mark.parametrize("seed", range(3))
def test_damaged_options_of_a_custom_operator(seed: int) -> None:
    """LiteRT follows the offsets in them wherever they lead: these crash it, or did not look like a crash yet."""
    file, rng = unpacked(detector()), np.random.default_rng(seed)
    operator = file.subgraphs[0].operators[1]
    good: NDArray[np.uint8] = np.array(operator.customOptions, np.uint8)
    for damaged in (rng.integers(256, size=good.size), good[: rng.integers(1, good.size)], good[::-1]):
        operator.customOptions = damaged.astype(np.uint8)
        with pytest.raises(ModelError, match="operator 1 TFLite_Detection_PostProcess has "):
            read_model(packed(file))
