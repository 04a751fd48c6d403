"""The models that the writer refuses, and its messages."""

from __future__ import annotations

import pytest
import tflite

from tflgpu.model.operator_options import BUILTINS, options_table
from tflgpu.model.tensor_info import Quantization
from tflgpu.model.writer import ModelBuilder


def test_every_option_table_is_reached_by_an_operator() -> None:
    unions = {name for union in (tflite.BuiltinOptions, tflite.BuiltinOptions2) for name in vars(union)}
    tables = {name for name in unions if name.endswith("Options")}
    assert tables - {options_table(code) for code in BUILTINS} == set()


@pytest.mark.parametrize(
    ("code", "options", "message"),
    [
        ("CONV_2D", {"stride": 2}, "CONV_2D has no option 'stride'; valid options: .*stride_h, stride_w"),
        ("CONV_2D", {"padding": "FULL"}, "CONV_2D option padding='FULL': not one of SAME, VALID"),
        ("CONV_2D", {"stride_w": 1.5}, "CONV_2D option stride_w=1.5"),
        ("CONV_2D", {"stride_w": 2**31}, "stride_w=2147483648: outside of int32"),
        ("MEAN", {"keep_dims": 2}, "MEAN option keep_dims=2: outside of bool"),
        ("RESHAPE", {"new_shape": [1, 2.5]}, "RESHAPE option new_shape=.*not a list of int32"),
        ("VAR_HANDLE", {"container": 1}, "VAR_HANDLE option container=1: not a string"),
        ("LOGISTIC", {"beta": 1.0}, "LOGISTIC has no option 'beta'; valid options: none"),
        ("MyOp", {"beta": 1.0}, "MyOp has no option 'beta'; valid options: none"),
    ],
)  # fmt: skip
def test_bad_options_name_operator_and_option(code: str, options: dict[str, object], message: str) -> None:
    builder = ModelBuilder()
    x = builder.input((1,))
    with pytest.raises(ValueError, match=message):
        builder.op(code, [x], [x], options)


def test_bad_tensors_are_refused() -> None:
    builder = ModelBuilder()
    x = builder.input((1,), name="x")
    with pytest.raises(ValueError, match="ADD input: no tensor 7; the model has 1"):
        builder.op("ADD", [x, 7], [x])
    with pytest.raises(ValueError, match="ADD output: no tensor -1"):
        builder.op("ADD", [x, x], [-1])
    with pytest.raises(ValueError, match="model output: no tensor 9"):
        builder.finish([9])
    with pytest.raises(ValueError, match="no tensor type 'float31'"):
        builder.tensor((1,), "float31")
    with pytest.raises(ValueError, match="negative dimension"):
        builder.tensor((1, -1))
    with pytest.raises(ValueError, match="has not the rank of shape"):
        builder.input((1, 2), shape_signature=(-1,))
    with pytest.raises(ValueError, match="1 scales and 2 zero points"):
        Quantization([0.5], [0, 1])
    with pytest.raises(ValueError, match="custom_options are for custom operators"):
        builder.op("NEG", [x], [x], custom_options=b"x")
    twin = builder.tensor((1,), name="x")
    with pytest.raises(ValueError, match="distinct tensor names"):
        builder.finish([x, twin], signature="serving_default")


def test_subgraphs_do_not_nest() -> None:
    builder, inner, innermost = ModelBuilder(), ModelBuilder(), ModelBuilder()
    inner.subgraph(innermost)
    with pytest.raises(ValueError, match="a subgraph cannot have subgraphs"):
        builder.subgraph(inner)
    with pytest.raises(ValueError, match="no tensor 0"):
        builder.subgraph(innermost, outputs=[0])
