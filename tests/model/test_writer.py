"""The model writer: LiteRT's interpreter loads what it writes and gives numpy's answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tflite
from ai_edge_litert.interpreter import Interpreter
from flatbuffers import flexbuffers
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from tflgpu.model.operator_options import BUILTINS
from tflgpu.model.tensor_info import Quantization
from tflgpu.model.writer import ModelBuilder

Array = NDArray[Any]


def run_litert(model: bytes, *inputs: Array) -> list[Array]:
    """The outputs of ``model`` in LiteRT's interpreter, in model order."""
    interpreter = Interpreter(model_content=model, num_threads=1)
    interpreter.allocate_tensors()
    for detail, value in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.set_tensor(detail["index"], value)
    interpreter.invoke()
    return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]


def run_op(
    code: str,
    x: Array,
    constants: Sequence[Array],
    out_shape: Sequence[int],
    options: Mapping[str, object] | None = None,
) -> Array:
    """The output of a model of one operator with one input and ``constants`` as its other inputs."""
    builder = ModelBuilder()
    inputs = [builder.input(x.shape, x.dtype.name), *map(builder.constant, constants)]
    y = builder.tensor(out_shape, x.dtype.name)
    builder.op(code, inputs, [y], options)
    (result,) = run_litert(builder.finish([y]), x)
    return result


def normal(*shape: int) -> Array:
    return np.random.default_rng(7).standard_normal(shape).astype(np.float32)


def windows(x: Array, kernel: int, stride: int, pad: tuple[int, int]) -> Array:
    """Windows of NHWC ``x`` as (N, OH, OW, C, kernel, kernel); ``pad`` is (before, after) for H and W."""
    padded = np.pad(x, ((0, 0), pad, pad, (0, 0)))
    return sliding_window_view(padded, (kernel, kernel), axis=(1, 2))[:, ::stride, ::stride]


def test_conv_with_fused_relu6() -> None:
    x, weights, bias = normal(1, 8, 8, 3), normal(5, 3, 3, 3), normal(5)
    options = {"padding": "SAME", "stride_w": 2, "stride_h": 2, "fused_activation_function": "RELU6"}
    got = run_op("CONV_2D", x, [weights, bias], (1, 4, 4, 5), options)
    linear = np.einsum("nhwcij,oijc->nhwo", windows(x, 3, 2, (0, 1)), weights) + bias
    np.testing.assert_allclose(got, np.clip(linear, 0, 6), atol=1e-5)


def test_depthwise_conv_with_multiplier() -> None:
    x, weights, bias = normal(1, 6, 6, 4), normal(1, 3, 3, 8), normal(8)
    options = {"padding": "VALID", "stride_w": 1, "stride_h": 1, "depth_multiplier": 2}
    got = run_op("DEPTHWISE_CONV_2D", x, [weights, bias], (1, 4, 4, 8), options)
    per_channel = np.einsum("nhwcij,ijcm->nhwcm", windows(x, 3, 1, (0, 0)), weights[0].reshape(3, 3, 4, 2))
    np.testing.assert_allclose(got, per_channel.reshape(1, 4, 4, 8) + bias, atol=1e-5)


def test_pad() -> None:
    x = normal(1, 3, 4, 2)
    paddings = np.array([[0, 0], [1, 2], [0, 3], [0, 1]], np.int32)
    got = run_op("PAD", x, [paddings], (1, 6, 7, 3))
    np.testing.assert_array_equal(got, np.pad(x, paddings))


def test_strided_slice_masks() -> None:
    x = normal(2, 7, 6)
    begin, end, strides = (np.array(v, np.int32) for v in ([1, 0, 1], [2, 5, 0], [1, 2, 2]))
    options = {"shrink_axis_mask": 0b001, "begin_mask": 0b010, "end_mask": 0b100}
    got = run_op("STRIDED_SLICE", x, [begin, end, strides], (3, 3), options)
    np.testing.assert_array_equal(got, x[1, :5:2, 1::2])


def test_softmax_beta() -> None:
    x = normal(3, 9)
    got = run_op("SOFTMAX", x, [], (3, 9), {"beta": 0.5})
    exps = np.exp(0.5 * (x - x.max(-1, keepdims=True)))
    np.testing.assert_allclose(got, exps / exps.sum(-1, keepdims=True), atol=1e-6)


def test_reshape_takes_its_shape_from_the_option_vector() -> None:
    x = normal(2, 3, 4)
    got = run_op("RESHAPE", x, [], (4, 6), {"new_shape": [4, -1]})
    np.testing.assert_array_equal(got, x.reshape(4, 6))


def test_float_option_vector() -> None:
    builder = ModelBuilder()
    x = builder.input((5,))
    y = builder.tensor((5,), "int32")
    builder.op("BUCKETIZE", [x], [y], {"boundaries": [0.0, 10.5]})
    values = np.array([-1, 0, 10, 10.5, 11], np.float32)
    (got,) = run_litert(builder.finish([y]), values)
    np.testing.assert_array_equal(got, np.digitize(values, [0.0, 10.5]))


def test_op_beyond_the_8_bit_code_and_with_an_enum_option() -> None:
    builder = ModelBuilder()
    x = builder.input((2, 3))
    y = builder.tensor((2, 3))
    builder.op("GELU", [x], [y], {"approximate": True})
    z = builder.tensor((2, 3), "int32")
    builder.op("CAST", [x], [z], {"in_data_type": "float32", "out_data_type": "INT32"})
    values = normal(2, 3)
    gelu, cast = run_litert(builder.finish([y, z]), values)
    expected = 0.5 * values * (1 + np.tanh(np.sqrt(2 / np.pi) * (values + 0.044715 * values**3)))
    np.testing.assert_allclose(gelu, expected, atol=1e-5)
    np.testing.assert_array_equal(cast, values.astype(np.int32))
    assert BUILTINS["GELU"] > tflite.BuiltinOperator.PLACEHOLDER_FOR_GREATER_OP_CODES


def test_op_with_options_in_the_second_union() -> None:
    x = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    options = {"edge_padding_low": [1, 0], "edge_padding_high": [0, 2], "interior_padding": [1, 0]}
    got = run_op("STABLEHLO_PAD", x, [np.array(9, np.float32)], (4, 5), options)
    np.testing.assert_array_equal(got, [[9] * 5, [1, 2, 3, 9, 9], [9] * 5, [4, 5, 6, 9, 9]])


def test_per_channel_quantized_fully_connected() -> None:
    rng = np.random.default_rng(3)
    q_x = rng.integers(-128, 128, (2, 8), np.int8)
    q_w = rng.integers(-127, 128, (4, 8), np.int8)
    q_b = rng.integers(-500, 500, 4, np.int32)
    w_scale = np.array([0.01, 0.02, 0.03, 0.015])
    builder = ModelBuilder()
    x = builder.input((2, 8), "int8", quantization=Quantization([0.05], [3]))
    w = builder.constant(q_w, quantization=Quantization(w_scale.tolist(), [0] * 4, axis=0))
    b = builder.constant(q_b, quantization=Quantization((0.05 * w_scale).tolist(), [0] * 4))
    y = builder.tensor((2, 4), "int8", quantization=Quantization([0.4], [-7]))
    builder.op("FULLY_CONNECTED", [x, w, b], [y], version=4)
    (got,) = run_litert(builder.finish([y]), q_x)
    real = (0.05 * (q_x.astype(np.float64) - 3)) @ (w_scale[:, None] * q_w).T + 0.05 * w_scale * q_b
    expected = np.clip(np.round(real / 0.4) - 7, -128, 127)
    assert np.abs(got - expected).max() <= 1  # one quantum: the rounding of a fixed-point multiplier
    assert len(np.unique(got)) > 4


def test_float16_weights_behind_dequantize() -> None:
    weights = normal(3, 6).astype(np.float16)
    builder = ModelBuilder()
    x = builder.input((2, 6))
    half = builder.constant(weights)
    full = builder.tensor(weights.shape)
    builder.op("DEQUANTIZE", [half], [full], version=3)
    y = builder.tensor((2, 3))
    builder.op("FULLY_CONNECTED", [x, full, -1], [y])
    values = normal(2, 6)
    (got,) = run_litert(builder.finish([y]), values)
    np.testing.assert_allclose(got, values @ weights.astype(np.float32).T, atol=1e-5)


def test_custom_op_with_its_options() -> None:
    """LiteRT carries one custom kernel: non-maximum suppression of SSD boxes, options as a flexbuffer map."""
    options = {
        "max_detections": 2, "max_classes_per_detection": 1, "num_classes": 2, "use_regular_nms": False,
        "nms_score_threshold": 0.5, "nms_iou_threshold": 0.5,
        "y_scale": 1.0, "x_scale": 1.0, "h_scale": 1.0, "w_scale": 1.0,
    }  # fmt: skip
    anchors = np.array([[0.2, 0.2, 0.2, 0.2], [0.21, 0.2, 0.2, 0.2], [0.8, 0.7, 0.2, 0.4]], np.float32)
    builder = ModelBuilder()
    deltas = builder.input((1, 3, 4))
    scores = builder.input((1, 3, 3))
    outputs = [builder.tensor(shape) for shape in ((1, 2, 4), (1, 2), (1, 2), (1,))]
    builder.op(
        "TFLite_Detection_PostProcess",
        [deltas, scores, builder.constant(anchors)],
        outputs,
        custom_options=bytes(flexbuffers.Dumps(options)),
    )
    class_scores = np.array([[[0, 0.6, 0.1], [0, 0.9, 0.2], [0, 0.3, 0.7]]], np.float32)
    boxes, classes, best, count = run_litert(builder.finish(outputs), np.zeros((1, 3, 4), np.float32), class_scores)
    np.testing.assert_allclose(boxes[0], [[0.11, 0.1, 0.31, 0.3], [0.7, 0.5, 0.9, 0.9]], atol=1e-6)
    np.testing.assert_array_equal(classes, [[0, 1]])
    np.testing.assert_allclose(best, [[0.9, 0.7]], atol=1e-6)
    np.testing.assert_array_equal(count, [2])


def test_variable_tensor_keeps_its_value_between_calls() -> None:
    rank, units = 1, 2
    feature_weights = np.ones((units, 3), np.float32)
    time_weights = np.ones((units, 2), np.float32)
    builder = ModelBuilder()
    x = builder.input((1, 3))
    state = builder.tensor((1, units * 2), is_variable=True)
    y = builder.tensor((1, units))
    constants = map(builder.constant, (feature_weights, time_weights))
    builder.op("SVDF", [x, *constants, -1, state], [y], {"rank": rank})
    interpreter = Interpreter(model_content=builder.finish([y]))
    interpreter.allocate_tensors()
    sums = []
    for _ in range(2):
        interpreter.set_tensor(interpreter.get_input_details()[0]["index"], np.ones((1, 3), np.float32))
        interpreter.invoke()
        sums.append(interpreter.get_tensor(interpreter.get_output_details()[0]["index"])[0, 0])
    assert sums == [3, 6]


def test_signature_names_and_shape_signature() -> None:
    builder = ModelBuilder("negation")
    x = builder.input((1, 4), name="image", shape_signature=(-1, 4))
    y = builder.tensor((1, 4), name="negative")
    builder.op("NEG", [x], [y])
    interpreter = Interpreter(model_content=builder.finish([y], signature="serving_default"))
    assert interpreter.get_signature_list() == {"serving_default": {"inputs": ["image"], "outputs": ["negative"]}}
    assert interpreter.get_input_details()[0]["shape_signature"].tolist() == [-1, 4]
    result = interpreter.get_signature_runner()(image=np.ones((3, 4), np.float32))
    np.testing.assert_array_equal(result["negative"], -np.ones((3, 4)))


def test_file_layout() -> None:
    """Identifier, version, empty buffer 0, 16-byte alignment and both operator code fields."""
    builder = ModelBuilder("layout")
    x = builder.input((1, 5))
    odd = builder.constant(np.arange(5, dtype=np.int8))
    weights = builder.constant(np.ones((1, 5), np.float32))
    y, z = builder.tensor((1, 5)), builder.tensor((1, 5))
    builder.op("ADD", [x, weights], [y], version=2)
    builder.op("MyOp", [y, odd], [z], custom_options=b"\x01\x02")
    data = builder.finish([z])
    assert tflite.Model.ModelBufferHasIdentifier(data, 0)
    model = tflite.Model.GetRootAs(data, 0)
    assert (model.Version(), model.Description()) == (3, b"layout")
    assert model.Buffers(0).DataLength() == 0
    for i in range(1, model.BuffersLength()):
        address = model.Buffers(i).DataAsNumpy().__array_interface__["data"][0]
        assert (address - np.frombuffer(data, np.uint8).__array_interface__["data"][0]) % 16 == 0
    add, custom = model.OperatorCodes(0), model.OperatorCodes(1)
    assert (add.DeprecatedBuiltinCode(), add.BuiltinCode(), add.Version()) == (0, 0, 2)
    assert (custom.DeprecatedBuiltinCode(), custom.BuiltinCode(), custom.CustomCode()) == (32, 32, b"MyOp")
    assert model.Subgraphs(0).Operators(1).CustomOptionsAsNumpy().tolist() == [1, 2]
