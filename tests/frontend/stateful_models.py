"""Small models that keep something from one run to the next, and LiteRT's runs of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.ops.case import Net
from tests.ops.rows.recurrent import EVERYTHING, Lstm, operator_inputs, sequence_node, weights
from tests.support.models import Builder
from tflgpu.model.tensor_info import Quantization

Array = NDArray[Any]
Runs = list[list[Array]]
SHAPE = (2, 3, 5)


def handle(builder: Builder, name: str) -> int:
    return builder.add("VAR_HANDLE", [], (), "resource", container="", shared_name=name)


def read(builder: Builder, name: str, shape: Sequence[int] = SHAPE, dtype: str = "float32", **more: Any) -> int:
    return builder.add("READ_VARIABLE", [handle(builder, name)], shape, dtype, **more)


def assign(builder: Builder, name: str, value: int) -> None:
    builder.op("ASSIGN_VARIABLE", [handle(builder, name), value], [])


def first_values(builder: Builder, values: Mapping[str, Array], **more: Any) -> None:
    """A CALL_ONCE that gives variables these values."""
    first = Builder()
    for name, value in values.items():
        assign(first, name, first.constant(value, **more))
    builder.op("CALL_ONCE", [], [], {"init_subgraph_index": builder.subgraph(first)})


def binary(builder: Builder, code: str, x: int, y: int, shape: Sequence[int] = SHAPE, dtype: str = "float32") -> int:
    return builder.add(code, [x, y], shape, dtype)


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def sum_of_inputs() -> bytes:
    """The new value is an output as well."""
    builder = Builder()
    x = builder.input(SHAPE)
    first_values(builder, {"sum": normal(*SHAPE)})
    total = binary(builder, "ADD", read(builder, "sum"), x)
    assign(builder, "sum", total)
    return builder.finish([total])


def delay() -> bytes:
    """An input becomes the state, and the state an output."""
    builder = Builder()
    x = builder.input(SHAPE)
    first_values(builder, {"last": normal(*SHAPE)})
    last = read(builder, "last")
    assign(builder, "last", x)
    return builder.finish([last])


def exchange() -> bytes:
    """Two variables change places, so that neither may be overwritten before the other has been read."""
    builder = Builder()
    x = builder.input(SHAPE)
    first_values(builder, {"a": normal(*SHAPE, seed=1), "b": normal(*SHAPE, seed=2)})
    a, b = read(builder, "a"), read(builder, "b")
    assign(builder, "a", b)
    assign(builder, "b", a)
    return builder.finish([binary(builder, "MUL", x, binary(builder, "SUB", a, b))])


def one_value_for_two() -> bytes:
    """Two variables get the same value, a third one a constant and a fourth one its own value again."""
    builder = Builder()
    x = builder.input(SHAPE)
    names = ("a", "b", "constant", "same")
    first_values(builder, {name: normal(*SHAPE, seed=i) for i, name in enumerate(names)})
    values = {name: read(builder, name) for name in names}
    difference = binary(builder, "SUB", x, values["a"])
    assign(builder, "a", difference)
    assign(builder, "b", difference)
    assign(builder, "constant", builder.constant(normal(*SHAPE, seed=9)))
    assign(builder, "same", values["same"])
    return builder.finish([*values.values(), difference])


def in_the_order_of_the_file() -> bytes:
    """Each reading gives what was assigned last."""
    builder = Builder()
    x = builder.input(SHAPE)
    first_values(builder, {"s": normal(*SHAPE)})
    results = []
    for code in ("ADD", "MUL"):
        results.append(read(builder, "s"))
        assign(builder, "s", binary(builder, code, results[-1], x))
    results.append(read(builder, "s"))
    return builder.finish([*results, read(builder, "s")])


def window() -> bytes:
    """The state is a part of what it was read into, as in streaming models."""
    builder = Builder()
    x = builder.input((1, 2, 1, 6))
    first_values(builder, {"rows": normal(1, 3, 1, 6)})
    old = read(builder, "rows", (1, 3, 1, 6))
    rows = builder.add("CONCATENATION", [old, x], (1, 5, 1, 6), axis=1)
    bounds = [builder.ints(b) for b in ([0, 2, 0, 0], [1, 5, 1, 6], [1, 1, 1, 1])]
    kept = builder.add("STRIDED_SLICE", [rows, *bounds], (1, 3, 1, 6))
    assign(builder, "rows", kept)
    return builder.finish([rows])


def seen_in_another_shape() -> bytes:
    """Views of the state, and a view as its next value."""
    builder = Builder()
    x = builder.input((1, 1, 6, 4))
    first_values(builder, {"s": normal(1, 2, 3, 4)})
    state = read(builder, "s", (1, 2, 3, 4))
    flat = builder.add("RESHAPE", [state, builder.ints([1, 1, 6, 4])], (1, 1, 6, 4))
    total = binary(builder, "ADD", flat, x, (1, 1, 6, 4))
    back = builder.add("RESHAPE", [total, builder.ints([1, 2, 3, 4])], (1, 2, 3, 4))
    assign(builder, "s", back)
    return builder.finish([flat, back])


def replaced_rows() -> bytes:
    """Rows of two variables are replaced, where an input says; of the second all old elements are needed once more."""
    builder, shape = Builder(), (4, 3, 5)
    row, place = builder.input((2, 1, 5)), builder.input((3,), "int32")
    first_values(builder, {"a": normal(*shape, seed=1), "b": normal(*shape, seed=2)})
    results = []
    for name in ("a", "b"):
        old = read(builder, name, shape)
        new = builder.add("DYNAMIC_UPDATE_SLICE", [old, row, place], shape)
        assign(builder, name, new)
        results.append(new if name == "a" else binary(builder, "MUL", old, new, shape))
    return builder.finish(results)


def counter() -> bytes:
    builder = Builder()
    x = builder.input((1, 3), "int32")
    first_values(builder, {"count": np.array([[1, -2, 3]], np.int32)})
    count = read(builder, "count", (1, 3), "int32")
    assign(builder, "count", binary(builder, "ADD", count, x, (1, 3), "int32"))
    return builder.finish([count])


def quantized() -> bytes:
    builder, grid = Builder(), Quantization([0.25], [3])
    x = builder.input(SHAPE, "int8", quantization=grid)
    first = np.random.default_rng(0).integers(-128, 128, SHAPE).astype(np.int8)
    first_values(builder, {"last": first}, quantization=grid)
    last = read(builder, "last", SHAPE, "int8", quantization=grid)
    assign(builder, "last", x)
    return builder.finish([last])


def variable_tensor() -> bytes:
    """An operator whose output is a variable tensor."""
    builder = Builder()
    x, kept = builder.input(SHAPE), builder.tensor(SHAPE, is_variable=True)
    total = binary(builder, "ADD", kept, x)
    builder.op("TANH", [total], [kept])
    return builder.finish([total])


def never_assigned() -> bytes:
    builder = Builder()
    x = builder.input(SHAPE)
    first_values(builder, {"s": normal(*SHAPE)})
    return builder.finish([binary(builder, "ADD", read(builder, "s"), x), read(builder, "s")])


def sequence(lstm: Lstm) -> bytes:
    net = Net(seed=1)
    net.output(sequence_node(net, lstm, times=3, batch=2, depth=5, time_major=True))
    return net.case().model


def single_step(lstm: Lstm) -> bytes:
    """The state tensors have another rank than the operator's own."""
    net = Net(seed=1)
    x = net.input(normal(2, 5))
    state = net.variable((1, 2, lstm.outputs)), net.variable((1, 2, lstm.cells))
    inputs = operator_inputs(x, weights(net, lstm, 5), *state)
    net.output(net.op("LSTM", inputs, np.zeros((2, lstm.outputs)), lstm.options))
    return net.case().model


def from_constants() -> bytes:
    """An LSTM whose state begins with what DEQUANTIZE makes of constants: LiteRT does so once."""
    net, lstm = Net(seed=2), Lstm(9, 9)
    x, states = net.input(normal(2, 3, 4)), [net.variable((2, 9)) for _ in range(2)]
    for seed, state in enumerate(states):
        net.change(state, "DEQUANTIZE", [net.constant(normal(2, 9, seed=seed).astype(np.float16))], state.value)
    inputs = operator_inputs(x, weights(net, lstm, 4), *states)
    net.output(net.op("UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, np.zeros((2, 3, 9)), lstm.options))
    return net.case().model


MODELS: dict[str, Callable[[], bytes]] = {
    "sum_of_inputs": sum_of_inputs,
    "delay": delay,
    "exchange": exchange,
    "one_value_for_two": one_value_for_two,
    "in_the_order_of_the_file": in_the_order_of_the_file,
    "window": window,
    "seen_in_another_shape": seen_in_another_shape,
    "replaced_rows": replaced_rows,
    "counter": counter,
    "quantized": quantized,
    "variable_tensor": variable_tensor,
    "never_assigned": never_assigned,
    "plain_sequence": lambda: sequence(Lstm(9, 9)),
    "sequence_with_everything": lambda: sequence(EVERYTHING),
    "plain_step": lambda: single_step(Lstm(9, 9)),
    "step_with_everything": lambda: single_step(EVERYTHING),
    "from_constants": from_constants,
}
