"""Element types that numpy's arrays do not have, and shapes that contradict each other, in an otherwise sound model."""

from __future__ import annotations

import pytest

import tflgpu
from tests.support.models import Builder
from tests.support.targets import CPU
from tflgpu.compiler import compile_model
from tflgpu.fallback.schema_objects import packed, unpacked
from tflgpu.model.reader import read_model


def with_input(dtype: str, *, read: bool) -> bytes:
    """A model with one more input of a type, which an operator reads or nothing does."""
    builder = Builder()
    x, s = builder.input((2, 2), name="x"), builder.input((4,), dtype, name="s")
    y = builder.add("NEG", [x], (2, 2), name="y")
    if read:
        builder.add("RESHAPE", [s, builder.ints([2, 2])], (2, 2), dtype, new_shape=[2, 2])
    return builder.finish([y])


@pytest.mark.parametrize("read", [False, True])
@pytest.mark.parametrize("dtype", ["string", "int4", "bfloat16", "resource", "variant"])
def test_inputs_that_no_array_can_hold_are_refused_where_something_reads_them(dtype: str, read: bool) -> None:
    model = with_input(dtype, read=read)
    if read:
        with pytest.raises(tflgpu.UnsupportedError, match=f"input 's' has element type {dtype}, which numpy"):
            compile_model(model, tflgpu.Options(), CPU)
    else:
        compile_model(model, tflgpu.Options(), CPU)
    assert [info.dtype for info in tflgpu.inspect(model).model.inputs] == (["float32", dtype] if read else ["float32"])
    details = tflgpu.Interpreter(model_content=model).get_input_details()
    assert [d["name"] for d in details] == ["x", "s"]


def test_a_signature_of_another_rank_is_ignored() -> None:
    pytest.importorskip("ai_edge_litert")
    file = unpacked(with_input("float32", read=False))
    for tensor in file.subgraphs[0].tensors:
        tensor.shapeSignature = [-1, -1, -1, -1]
    damaged = packed(file)
    assert all(t.signature == t.shape for t in read_model(damaged).subgraphs[0].tensors)
    assert tflgpu.inspect(damaged).model.inputs[0].free_axes == ()
