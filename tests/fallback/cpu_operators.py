"""Small models of the operators that LiteRT has and the device has not, one of each."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.frontend.dynamic_models import ANY, DynamicBuilder
from tflgpu.model.writer import ModelBuilder

Given = list[NDArray[Any]]
RNG = np.random.default_rng(0)
ABSENT = -1


def strings(builder: DynamicBuilder, *texts: bytes) -> int:
    """A constant of strings, as TFLite packs them."""
    ends = np.cumsum([8 + 4 * len(texts), *map(len, texts)])
    builder._buffers.append(struct.pack(f"<{len(texts) + 2}i", len(texts), *ends) + b"".join(texts))
    return builder._add_tensor(
        "constant", None, (len(texts),), "string", buffer=len(builder._buffers) - 1, quantization=None
    )


def _numbers(*shape: int) -> NDArray[np.float32]:
    return RNG.standard_normal(shape).astype(np.float32)


def _body(builder: DynamicBuilder, code: str) -> int:
    """The number of a subgraph that joins two numbers."""
    body = ModelBuilder()
    x, y, result = body.input(()), body.input(()), body.tensor(())
    body.op(code, [x, y], [result])
    return builder.subgraph(body, [result])


def _cell(builder: DynamicBuilder, inputs: int, units: int) -> list[int]:
    return [builder.weights(units, inputs), builder.weights(units, units), builder.weights(units)]


def rnn(builder: DynamicBuilder) -> tuple[Sequence[int], Given]:
    state = builder.tensor((2, 4), is_variable=True)
    inputs = [builder.input((2, 3)), *_cell(builder, 3, 4), state]
    return [builder.add("RNN", inputs, (2, 4), fused_activation_function="TANH")], [_numbers(2, 3)]


def sequence_rnn(builder: DynamicBuilder) -> tuple[Sequence[int], Given]:
    state = builder.tensor((2, 4), is_variable=True)
    inputs = [builder.input((5, 2, 3)), *_cell(builder, 3, 4), state]
    options = {"fused_activation_function": "TANH", "time_major": True}
    return [builder.add("UNIDIRECTIONAL_SEQUENCE_RNN", inputs, (5, 2, 4), **options)], [_numbers(5, 2, 3)]


def two_way_rnn(builder: DynamicBuilder) -> tuple[Sequence[int], Given]:
    inputs = [builder.input((5, 2, 3))]
    for _ in range(2):
        inputs += [*_cell(builder, 3, 4), builder.tensor((2, 4), is_variable=True)]
    options = {"fused_activation_function": "TANH", "time_major": True, "merge_outputs": True}
    result = builder.add("BIDIRECTIONAL_SEQUENCE_RNN", [*inputs, *[ABSENT] * 3], (5, 2, 8), **options)
    return [result], [_numbers(5, 2, 3)]


def two_way_lstm(builder: DynamicBuilder) -> tuple[Sequence[int], Given]:
    inputs = [builder.input((5, 2, 3))]
    for _ in range(2):
        inputs += [*(builder.weights(4, 3) for _ in range(4)), *(builder.weights(4, 4) for _ in range(4))]
        inputs += [*[ABSENT] * 3, *(builder.weights(4) for _ in range(4)), ABSENT, ABSENT]
    inputs += [*(builder.tensor((2, 4), is_variable=True) for _ in range(4)), *[ABSENT] * 9]
    options = {"fused_activation_function": "TANH", "time_major": True, "merge_outputs": True}
    return [builder.add("BIDIRECTIONAL_SEQUENCE_LSTM", inputs, (5, 2, 8), **options)], [_numbers(5, 2, 3)]


def svdf(builder: DynamicBuilder) -> tuple[Sequence[int], Given]:
    state = builder.tensor((2, 20), is_variable=True)
    inputs = [builder.input((2, 3)), builder.weights(4, 3), builder.weights(4, 5), builder.weights(4), state]
    return [builder.add("SVDF", inputs, (2, 4), rank=1)], [_numbers(2, 3)]


def hashed_rows(builder: DynamicBuilder) -> tuple[Sequence[int], Given]:
    keys, table = builder.ints([1, 4, 6]), builder.weights(3, 2)
    results = [builder.tensor((4, 2)), builder.tensor((4,), "uint8")]
    builder.op("HASHTABLE_LOOKUP", [builder.input((4,), "int32"), keys, table], results)
    return results, [np.array([4, 2, 6, 1], np.int32)]


def hash_table(builder: DynamicBuilder) -> tuple[Sequence[int], Given]:
    """Names of numbers: filled, looked up and counted."""
    table = builder.tensor((1,), "resource")
    builder.op("HASHTABLE", [], [table], {"table_id": 1, "key_dtype": "INT64", "value_dtype": "STRING"})
    keys = builder.constant(np.array([3, 7], np.int64))
    builder.op("HASHTABLE_IMPORT", [table, keys, strings(builder, b"three", b"seven")], [])
    given = builder.input((2,), "int64")
    name = builder.add("HASHTABLE_FIND", [table, given, strings(builder, b"none")], (2,), "string")
    return [builder.add("HASHTABLE_SIZE", [table], (1,), "int64"), name], [np.array([7, 5], np.int64)]


def projection(builder: DynamicBuilder) -> tuple[Sequence[int], Given]:
    inputs = [builder.weights(2, 2), builder.input((3, 2), "int32"), builder.weights(3)]
    return [builder.add("LSH_PROJECTION", inputs, (4,), "int32", type="DENSE")], [RNG.integers(0, 9, (3, 2), np.int32)]


def skip_gram(builder: DynamicBuilder) -> tuple[Sequence[int], Given]:
    options = {"ngram_size": 2, "max_skip_size": 1, "include_all_ngrams": True}
    return [builder.add("SKIP_GRAM", [strings(builder, b"the quick brown fox")], (ANY,), "string", **options)], []


def sparse_rows(builder: DynamicBuilder) -> tuple[Sequence[int], Given]:
    places, shape = builder.ints([[0, 0], [2, 0], [2, 1]]), builder.ints([3, 2])
    inputs = [builder.input((3,), "int32"), places, shape, builder.weights(3), builder.weights(4, 3, 2)]
    return [builder.add("EMBEDDING_LOOKUP_SPARSE", inputs, (3, 3, 2), combiner="SUM")], [np.array([1, 3, 0], np.int32)]


def sparse_to_dense(builder: DynamicBuilder) -> tuple[Sequence[int], Given]:
    inputs = [builder.ints([1, 4, 6]), builder.ints([8]), builder.input((3,)), builder.constant(np.float32(-1))]
    return [builder.add("SPARSE_TO_DENSE", inputs, (8,))], [_numbers(3)]


def fake_quantized(builder: DynamicBuilder) -> tuple[Sequence[int], Given]:
    options = {"min": -1.0, "max": 1.0, "num_bits": 8, "narrow_range": False}
    return [builder.add("FAKE_QUANT", [builder.input((3, 5))], (3, 5), **options)], [_numbers(3, 5)]


def broadcast_shape(builder: DynamicBuilder) -> tuple[Sequence[int], Given]:
    pair = [builder.input((2,), "int32"), builder.input((3,), "int32")]
    return [builder.add("BROADCAST_ARGS", pair, (3,), "int32")], [np.array(s, np.int32) for s in ((1, 4), (5, 3, 1))]


def random_normal(builder: DynamicBuilder) -> tuple[Sequence[int], Given]:
    drawn = builder.add("RANDOM_STANDARD_NORMAL", [builder.ints([2, 3])], (2, 3), seed=7, seed2=3)
    return [builder.add("ADD", [drawn, builder.input((2, 3))], (2, 3))], [_numbers(2, 3)]


def random_uniform(builder: DynamicBuilder) -> tuple[Sequence[int], Given]:
    drawn = builder.add("RANDOM_UNIFORM", [builder.ints([2, 3])], (2, 3), seed=7, seed2=3)
    return [builder.add("ADD", [drawn, builder.input((2, 3))], (2, 3))], [_numbers(2, 3)]


def multinomial(builder: DynamicBuilder) -> tuple[Sequence[int], Given]:
    inputs = [builder.input((2, 5)), builder.ints(6)]
    return [builder.add("MULTINOMIAL", inputs, (2, 6), "int64", seed=7, seed2=3)], [_numbers(2, 5)]


def random_bits(builder: DynamicBuilder) -> tuple[Sequence[int], Given]:
    state = builder.input((2,), "uint64")
    results = [builder.tensor((2,), "uint64"), builder.tensor((5,), "uint32")]
    builder.op("STABLEHLO_RNG_BIT_GENERATOR", [state], results, {"algorithm": "THREEFRY"})
    return results, [np.array([1, 2], np.uint64)]


def stablehlo_pad(builder: DynamicBuilder) -> tuple[Sequence[int], Given]:
    options = {"edge_padding_low": [1, -1], "edge_padding_high": [0, 2], "interior_padding": [1, 0]}
    inputs = [builder.input((2, 3)), builder.constant(np.float32(9))]
    return [builder.add("STABLEHLO_PAD", inputs, (4, 4), **options)], [_numbers(2, 3)]


def stablehlo_gather(builder: DynamicBuilder) -> tuple[Sequence[int], Given]:
    options = {
        "offset_dims": [1],
        "collapsed_slice_dims": [0],
        "start_index_map": [0],
        "index_vector_dim": 1,
        "slice_sizes": [1, 3],
    }
    inputs = [builder.input((5, 3)), builder.input((2, 1), "int32")]
    result = builder.add("STABLEHLO_GATHER", inputs, (2, 3), **options)
    return [result], [_numbers(5, 3), np.array([[4], [1]], np.int32)]


def stablehlo_windows(builder: DynamicBuilder) -> tuple[Sequence[int], Given]:
    options = {
        "window_dimensions": [2, 2],
        "window_strides": [1, 1],
        "base_dilations": [1, 1],
        "window_dilations": [1, 1],
        "padding": [0, 0, 0, 0],
        "body_subgraph_index": _body(builder, "STABLEHLO_ADD"),
    }
    inputs = [builder.input((4, 5)), builder.constant(np.float32(0))]
    return [builder.add("STABLEHLO_REDUCE_WINDOW", inputs, (3, 4), **options)], [_numbers(4, 5)]


def windows(builder: DynamicBuilder) -> tuple[Sequence[int], Given]:
    sizes = [builder.constant(np.array(n, np.int64)) for n in ((2, 2), (1, 1), (1, 1))]
    inputs = [builder.input((4, 5)), builder.constant(np.float32(0)), *sizes]
    return [builder.add("REDUCE_WINDOW", inputs, (3, 4), reduce_function="ADD")], [_numbers(4, 5)]


def dilated(builder: DynamicBuilder) -> tuple[Sequence[int], Given]:
    inputs = [builder.input((2, 3)), builder.ints([2, 1]), builder.constant(np.float32(0))]
    return [builder.add("DILATE", inputs, (3, 3))], [_numbers(2, 3)]


# The operators of LiteRT that run on its CPU only -> a model of each.
CPU_OPERATORS: dict[str, Callable[[DynamicBuilder], tuple[Sequence[int], Given]]] = {
    "BIDIRECTIONAL_SEQUENCE_LSTM": two_way_lstm,
    "BIDIRECTIONAL_SEQUENCE_RNN": two_way_rnn,
    "BROADCAST_ARGS": broadcast_shape,
    "DILATE": dilated,
    "EMBEDDING_LOOKUP_SPARSE": sparse_rows,
    "FAKE_QUANT": fake_quantized,
    "HASHTABLE": hash_table,
    "HASHTABLE_FIND": hash_table,
    "HASHTABLE_IMPORT": hash_table,
    "HASHTABLE_LOOKUP": hashed_rows,
    "HASHTABLE_SIZE": hash_table,
    "LSH_PROJECTION": projection,
    "MULTINOMIAL": multinomial,
    "RANDOM_STANDARD_NORMAL": random_normal,
    "RANDOM_UNIFORM": random_uniform,
    "REDUCE_WINDOW": windows,
    "RNN": rnn,
    "SKIP_GRAM": skip_gram,
    "SPARSE_TO_DENSE": sparse_to_dense,
    "STABLEHLO_GATHER": stablehlo_gather,
    "STABLEHLO_PAD": stablehlo_pad,
    "STABLEHLO_REDUCE_WINDOW": stablehlo_windows,
    "STABLEHLO_RNG_BIT_GENERATOR": random_bits,
    "SVDF": svdf,
    "UNIDIRECTIONAL_SEQUENCE_RNN": sequence_rnn,
}
