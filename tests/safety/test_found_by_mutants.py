"""Small models in which damage was found to end in a wrong answer, a foreign exception, a hang or a crash."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tflgpu
from tests.support import litert
from tests.support.models import Builder
from tflgpu.errors import ModelError, UnsupportedError
from tflgpu.fallback.schema_objects import packed, unpacked
from tflgpu.model.tensor_info import Quantization
from tflgpu.model.writer import ModelBuilder
from tflgpu.options import Options

Make = Callable[[ModelBuilder], int]  # the model's output


def strides_of_a_run(builder: Builder) -> int:
    x, strides = builder.input((4,)), builder.input((1,), "int32")
    begin, end = (builder.ints([n]) for n in (0, 4))
    return builder.add("STRIDED_SLICE", [x, begin, end, strides], (4,))


def large_window(builder: Builder) -> int:
    x = builder.input((1, 5, 9, 4))
    sizes = {"filter_height": 8, "filter_width": 1, "stride_h": 2, "stride_w": 1}
    return builder.add("MAX_POOL_2D", [x], (1, 1, 9, 4), padding=1, **sizes)


def large_dilated_window(builder: Builder) -> int:
    x = builder.input((1, 5, 9, 4))
    weights = builder.constant(np.ones((1, 2, 1, 4), np.float32))
    sizes = {"stride_h": 2, "stride_w": 1, "dilation_h_factor": 5, "dilation_w_factor": 1, "depth_multiplier": 1}
    return builder.add(
        "DEPTHWISE_CONV_2D",
        [x, weights, builder.constant(np.ones(4, np.float32))],
        (1, 1, 9, 4),
        padding=1,
        **sizes,
    )


def mixed_types(builder: Builder) -> int:
    x, b = builder.input((1, 4)), builder.input((1, 4), "bool")
    return builder.add("CONCATENATION", [x, b], (1, 8), axis=1)


def endless_range(builder: Builder) -> int:
    return builder.add("RANGE", [builder.constant(np.float32(n)) for n in (np.nan, 4, 1)], (4,))


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (strides_of_a_run, "its strides are computed at run time"),
        (large_window, r"a window of \[8, 1\] gives in \[5, 9\] pixels"),
        (large_dilated_window, r"a window of \[6, 1\] gives in \[5, 9\] pixels"),
        (mixed_types, "its inputs are bool and float32"),
        (endless_range, "its numbers are without end"),
    ],
)
def test_neither_the_device_nor_litert_gets_it(make: Make, what: str) -> None:
    builder = Builder()
    data = builder.finish([make(builder)])
    with pytest.raises(UnsupportedError, match=what):
        tflgpu.compile(data)


def test_a_permutation_is_a_list() -> None:
    builder = Builder()
    x = builder.input((4,))
    y = builder.add("TRANSPOSE", [x, builder.ints(0)], (4,))
    with pytest.raises(UnsupportedError, match="its permutation has shape"):
        tflgpu.compile(builder.finish([y]), Options(fallback="forbid"))


@pytest.mark.parametrize("code", ["SOFTMAX", "MEAN"])
def test_a_kernel_that_takes_integers_for_floats_is_not_called(code: str) -> None:
    """LiteRT's reads beyond the integers."""
    builder = Builder()
    x = builder.input((1, 8), "int16")
    y = builder.add(code, [x] if code == "SOFTMAX" else [x, builder.ints([1])], (1, 8))
    with pytest.raises(ModelError, match=f"operator 0 {code} makes float32 of int16"):
        tflgpu.compile(builder.finish([y]))


@pytest.mark.parametrize(("read", "assigned"), [(9, 3), (3, 1)], ids=["reads more", "assigns less"])
def test_nothing_behind_a_variable_is_read(read: int, assigned: int) -> None:
    """LiteRT copies as many bytes as the file has for what is read."""
    builder, once = Builder(), Builder()
    handle = once.add("VAR_HANDLE", [], (), "resource", container="", shared_name="v")
    once.op("ASSIGN_VARIABLE", [handle, once.constant(np.ones((1, 3), np.float32))], [])
    builder.op("CALL_ONCE", [], [], {"init_subgraph_index": builder.subgraph(once, [])})
    x = builder.input((1, assigned))
    handle = builder.add("VAR_HANDLE", [], (), "resource", container="", shared_name="v")
    y = builder.add("READ_VARIABLE", [handle], (1, read))
    builder.op("ASSIGN_VARIABLE", [handle, x], [])
    with pytest.raises(ModelError, match="variable 'v' of shape"):
        tflgpu.compile(builder.finish([y]))


def test_a_squeeze_without_axes_drops_all_of_size_1() -> None:
    builder = Builder()
    x = builder.input((1, 3, 1, 2))
    y = builder.add("SQUEEZE", [x], (3, 2))
    (got,) = (
        tflgpu.compile(builder.finish([y]), Options(fallback="forbid")).run(np.ones((1, 3, 1, 2), np.float32)).values()
    )
    assert got.shape == (3, 2)


def test_a_normalization_may_multiply_by_its_power(device_name: str) -> None:
    builder = Builder()
    x = builder.input((1, 2, 2, 5))
    y = builder.add(
        "LOCAL_RESPONSE_NORMALIZATION", [x], (1, 2, 2, 5), name="y", radius=1, bias=1.0, alpha=0.5, beta=-1.0
    )
    data, image = builder.finish([y]), np.random.default_rng(0).standard_normal((1, 2, 2, 5)).astype(np.float32)
    options = Options(precision="fp32", device=device_name, fallback="forbid")
    np.testing.assert_allclose(tflgpu.compile(data, options).run(image)["y"], litert.run(data, image)["y"], rtol=1e-5)


def test_a_handle_is_a_resource() -> None:
    builder = Builder()
    handle = builder.add("VAR_HANDLE", [], (), "float16", container="", shared_name="v")
    y = builder.add("READ_VARIABLE", [handle], (1, 3))
    with pytest.raises(ModelError, match="operator 0 VAR_HANDLE takes a tensor of float16 for the handle"):
        tflgpu.compile(builder.finish([y]))


@pytest.mark.parametrize(("place", "dtype"), [(12, "bool"), (8, "int32"), (18, "float16")])
def test_an_lstm_has_floats_where_its_kernel_reads_them(place: int, dtype: str) -> None:
    builder = Builder()
    shapes = {
        0: (1, 4),
        **dict.fromkeys(range(1, 9), (4, 4)),
        **dict.fromkeys(range(12, 16), (4,)),
        18: (1, 4),
        19: (1, 4),
    }
    inputs = [builder.input(shapes[i], dtype if i == place else "float32") if i in shapes else -1 for i in range(20)]
    y = builder.add("LSTM", inputs, (1, 4))
    with pytest.raises(ModelError, match=f"LSTM has {dtype} as its input {place}"):
        tflgpu.compile(builder.finish([y]))


@pytest.mark.parametrize("code", ["CONCATENATION", "PACK"])
def test_empty_inputs_are_joined_to_their_sizes(code: str, device_name: str) -> None:
    builder = Builder()
    inputs = [builder.input((3, 0)) for _ in range(2)]
    shape = (6, 0) if code == "CONCATENATION" else (2, 3, 0)
    y = builder.add(code, inputs, shape, axis=0, **({} if code == "CONCATENATION" else {"values_count": 2}))
    options = Options(device=device_name, fallback="forbid")
    (got,) = tflgpu.compile(builder.finish([y]), options).run([np.zeros((3, 0), np.float32)] * 2).values()
    assert got.shape == shape


def test_a_mean_of_integers_keeps_their_grid() -> None:
    """LiteRT's kernel does not look at what the result's integers stand for."""
    builder = Builder()
    x = builder.input((1, 2, 2, 4), "int8", quantization=Quantization((0.5,), (0,), 0))
    sizes = {"filter_height": 2, "filter_width": 2, "stride_h": 1, "stride_w": 1}
    y = builder.add(
        "AVERAGE_POOL_2D",
        [x],
        (1, 1, 1, 4),
        "int8",
        quantization=Quantization((0.25,), (2,), 0),
        padding=1,
        **sizes,
    )
    with pytest.raises(UnsupportedError, match="takes integers as they are"):
        tflgpu.compile(builder.finish([y]), Options(fallback="forbid"))


def test_an_output_has_every_name_that_its_signature_gives_it() -> None:
    builder = Builder()
    x = builder.input((2,), name="x")
    y = builder.add("ABS", [x], (2,), name="y")
    z = builder.add("NEG", [x], (2,), name="z")
    file = unpacked(builder.finish([y, z], signature="serve"))
    file.signatureDefs[0].outputs[1].tensorIndex = y  # what was called z
    outputs = tflgpu.compile(packed(file)).run(np.array([-1, 2], np.float32))
    assert [(name, value.tolist()) for name, value in outputs.items()] == [
        ("y", [1, 2]),
        ("z", [1, 2]),
        ("z_1", [1, -2]),
    ]


def test_a_scalar_has_no_axis_to_slice() -> None:
    builder = Builder()
    x, begin, end = builder.input(()), builder.input((1,), "int32"), builder.input((1,), "int32")
    y = builder.add("STRIDED_SLICE", [x, begin, end, builder.constant(np.ones(1, np.int32))], (), ellipsis_mask=1)
    values = [np.float32(3), np.zeros(1, np.int32), np.zeros(1, np.int32)]
    (got,) = tflgpu.compile(builder.finish([y]), Options(fallback="forbid")).run(values).values()
    assert got == 3


def test_a_large_sum_of_nothing_is_refused_by_its_size() -> None:
    builder = Builder()
    x = builder.input((5, 0, 2**31 - 1))
    y = builder.add("SUM", [x, builder.ints([1])], (1,), keep_dims=False)
    with pytest.raises(UnsupportedError, match="its result has 10737418235 elements"):
        tflgpu.compile(builder.finish([y]), Options(fallback="forbid"))


def test_branches_give_the_types_of_their_call() -> None:
    builder, whole, real = Builder(), Builder(), Builder()
    whole.input((2,))
    numbers = {"then_subgraph_index": builder.subgraph(whole, [whole.constant(np.ones(2, np.int32))])}
    numbers["else_subgraph_index"] = builder.subgraph(real, [real.input((2,))])
    truth, x = builder.input((), "bool"), builder.input((2,))
    y = builder.add("IF", [truth, x], (2,), **numbers)
    with pytest.raises(ModelError, match=r"IF has results of types \['float32'\], and subgraph 1 gives \['int32'\]"):
        tflgpu.compile(builder.finish([y]))


def test_a_state_of_an_lstm_is_nothing_else() -> None:
    builder = Builder()
    shapes = {0: (1, 4), **dict.fromkeys(range(1, 9), (4, 4)), **dict.fromkeys(range(12, 16), (4,)), 18: (1, 4)}
    inputs = [builder.input(shapes[i]) if i in shapes else -1 for i in range(20)]
    inputs[19] = inputs[18]
    y = builder.add("LSTM", inputs, (1, 4))
    with pytest.raises(ModelError, match="LSTM has a state that is also another one of its inputs"):
        tflgpu.compile(builder.finish([y]))
