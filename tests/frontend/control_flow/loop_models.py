"""Recurrent layers in WHILE loops, as TensorFlow's converter writes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tests.frontend.dynamic_models import ANY, DynamicBuilder

UNITS = 5


Cell = Callable[[DynamicBuilder, int, Sequence[int], np.random.Generator], list[int]]  # input, states -> new states


def _layer(body: DynamicBuilder, x: int, depth: int, outputs: int, rng: np.random.Generator) -> int:
    weights = rng.standard_normal((outputs, depth)) / 2 * (5 / max(5, depth)) ** 0.5
    constants = [body.constant(w.astype(np.float32)) for w in (weights, np.zeros(outputs))]
    return body.add("FULLY_CONNECTED", [x, *constants], (1, outputs))


def _gates(body: DynamicBuilder, joint: int, count: int) -> list[int]:
    gates = [body.tensor((1, UNITS)) for _ in range(count)]
    body.op("SPLIT", [body.ints(1), joint], gates, {"num_splits": count})
    return gates


def simple_cell(body: DynamicBuilder, x: int, states: Sequence[int], rng: np.random.Generator) -> list[int]:
    both = body.add("CONCATENATION", [x, states[0]], (1, 2 * UNITS), axis=1)
    return [body.add("TANH", [_layer(body, both, 2 * UNITS, UNITS, rng)], (1, UNITS))]


def lstm_cell(body: DynamicBuilder, x: int, states: Sequence[int], rng: np.random.Generator) -> list[int]:
    shape, (hidden, memory) = (1, UNITS), states
    joint = body.add("ADD", [_layer(body, t, UNITS, 4 * UNITS, rng) for t in (x, hidden)], (1, 4 * UNITS))
    taken, kept, candidate, shown = _gates(body, joint, 4)
    taken, kept, shown = (body.add("LOGISTIC", [t], shape) for t in (taken, kept, shown))
    new = body.add("MUL", [taken, body.add("TANH", [candidate], shape)], shape)
    memory = body.add("ADD", [body.add("MUL", [kept, memory], shape), new], shape)
    return [body.add("MUL", [shown, body.add("TANH", [memory], shape)], shape), memory]


def gru_cell(body: DynamicBuilder, x: int, states: Sequence[int], rng: np.random.Generator) -> list[int]:
    shape, (hidden,) = (1, UNITS), states
    update, reset, new = _gates(body, _layer(body, x, UNITS, 3 * UNITS, rng), 3)
    gates = _gates(body, _layer(body, hidden, UNITS, 3 * UNITS, rng), 3)
    sums = [body.add("ADD", [a, b], shape) for a, b in ((update, gates[0]), (reset, gates[1]))]
    update, reset = (body.add("LOGISTIC", [t], shape) for t in sums)
    new = body.add("ADD", [new, body.add("MUL", [reset, gates[2]], shape)], shape)
    change = body.add("SUB", [hidden, body.add("TANH", [new], shape)], shape)
    change = body.add("SUB", [change, body.add("MUL", [update, change], shape)], shape)
    return [body.add("SUB", [hidden, change], shape)]


def _written(body: DynamicBuilder, rows: int, place: int, row: int) -> int:
    """``rows`` with ``row`` at ``place``: a tensor list, as the converter writes it, has its rows sliced and joined."""
    at = body.add("RESHAPE", [place, body.ints([1])], (1,), "int32", new_shape=[1])
    size = body.add("CONCATENATION", [at, body.ints([-1, -1])], (3,), "int32", axis=0)
    before = body.add("SLICE", [rows, body.ints([0, 0, 0]), size], (ANY, 1, UNITS))
    next_row = body.add("ADD", [at, body.ints([1])], (1,), "int32")
    begin = body.add("CONCATENATION", [next_row, body.ints([0, 0])], (3,), "int32", axis=0)
    after = body.add("SLICE", [rows, begin, body.ints([-1, -1, -1])], (ANY, 1, UNITS))
    item = body.add("EXPAND_DIMS", [row, body.ints(0)], (1, 1, UNITS))
    return body.add("CONCATENATION", [before, item, after], (ANY, 1, UNITS), axis=0)


def recurrence(
    builder: DynamicBuilder, rows: int, empty: int, steps: int, *, backwards: bool, seed: int, cell: Cell
) -> list[int]:
    """A WHILE over rows of shape (ANY, 1, UNITS), as Keras' RNN layers become: all its outputs, the last states.

    empty: the list for the outputs, of the shape of ``rows``. steps: a tensor with the number of iterations.
    """
    matrix, row, number = (("float32", (ANY, 1, UNITS)), ("float32", (1, UNITS)), ("int32", ()))
    kept = [row] * (2 if cell is lstm_cell else 1)
    state = [number, matrix, *kept, matrix, number]
    condition, body = DynamicBuilder(), DynamicBuilder()

    def inputs(of: DynamicBuilder) -> list[int]:
        return [of.input([1 if d == ANY else d for d in s], t, shape_signature=s) for t, s in state]

    counter, *_, limit = inputs(condition)
    again = builder.subgraph(condition, [condition.add("LESS", [counter, limit], (), dtype="bool")])
    i, written, *states, read, limit = inputs(body)
    place = i
    if backwards:
        last = body.add("SUB", [limit, body.ints(1)], (), "int32")
        place = body.add("SUB", [last, i], (), "int32")
    x = body.add("GATHER", [read, place], (1, UNITS), axis=0)
    states = cell(body, x, states, np.random.default_rng(seed))
    following = body.add("ADD", [i, body.ints(1)], (), "int32")
    results = [following, _written(body, written, place, states[0]), *states, read, limit]
    zeros = [builder.constant(np.zeros((1, UNITS), np.float32)) for _ in kept]
    outputs = [
        builder.tensor([1 if d == ANY else d for d in s], t, shape_signature=s if ANY in s else None) for t, s in state
    ]
    options = {"cond_subgraph_index": again, "body_subgraph_index": builder.subgraph(body, results)}
    builder.op("WHILE", [builder.ints(0), empty, *zeros, rows, steps], outputs, options)
    return outputs[1:-2]


def sequence_model(cell: Cell, *, backwards: bool = False) -> bytes:
    """A Keras RNN layer for sequences of any length: its outputs and its last states."""
    builder = DynamicBuilder()
    x = builder.input((1, 1, UNITS), name="x", shape_signature=(1, ANY, UNITS))
    rows = builder.add("TRANSPOSE", [x, builder.ints([1, 0, 2])], (ANY, 1, UNITS))
    shape = builder.add("SHAPE", [rows], (3,), "int32", out_type="INT32")
    length = builder.add("STRIDED_SLICE", [shape, *map(builder.ints, ([0], [1], [1]))], (), "int32", shrink_axis_mask=1)
    empty = builder.add("FILL", [shape, builder.constant(np.float32(0))], (ANY, 1, UNITS))
    outputs, *states = recurrence(builder, rows, empty, length, backwards=backwards, seed=3, cell=cell)
    return builder.finish([builder.add("TRANSPOSE", [outputs, builder.ints([1, 0, 2])], (1, ANY, UNITS)), *states])


def unrolled_model(cell: Cell, times: int) -> bytes:
    """The same result for one length as :func:`sequence_model`, without a loop."""
    builder = DynamicBuilder()
    x = builder.input((1, times, UNITS), name="x")
    rows = builder.add("TRANSPOSE", [x, builder.ints([1, 0, 2])], (times, 1, UNITS))
    states = [builder.constant(np.zeros((1, UNITS), np.float32)) for _ in range(2 if cell is lstm_cell else 1)]
    items = []
    for i in range(times):
        row = builder.add("GATHER", [rows, builder.ints(i)], (1, UNITS), axis=0)
        states = cell(builder, row, states, np.random.default_rng(3))
        items.append(builder.add("EXPAND_DIMS", [states[0], builder.ints(0)], (1, 1, UNITS)))
    outputs = builder.add("CONCATENATION", items, (times, 1, UNITS), axis=0)
    return builder.finish([builder.add("TRANSPOSE", [outputs, builder.ints([1, 0, 2])], (1, times, UNITS)), *states])


def crnn(*, given_steps: bool = False) -> bytes:
    """Two convolutions, two bidirectional recurrent layers of two WHILE loops each, and a softmax.

    given_steps: the number of times is an input, not a constant.
    """
    builder, rng, width, depth = DynamicBuilder(), np.random.default_rng(1), 16, 1
    x = builder.input((1, 4, width, 1), name="image")
    times = width // 4
    steps = builder.input((), "int32", name="steps") if given_steps else builder.ints(times)
    for height, channels in ((4, 6), (2, UNITS)):
        kernel = builder.constant((rng.standard_normal((channels, 3, 3, depth)) / 3).astype(np.float32))
        window = {"padding": "SAME", "stride_w": 2, "stride_h": 2, "fused_activation_function": "RELU"}
        bias, shape = builder.constant(np.zeros(channels, np.float32)), (1, height // 2, width // 2, channels)
        x, width, depth = builder.add("CONV_2D", [x, kernel, bias], shape, **window), width // 2, channels
    rows = builder.add("RESHAPE", [x, builder.ints([times, 1, UNITS])], (times, 1, UNITS))
    for layer in range(2):
        empty = builder.constant(np.zeros((times, 1, UNITS), np.float32))
        pair = [
            recurrence(builder, rows, empty, steps, backwards=bool(back), seed=2 * layer + back, cell=simple_cell)[0]
            for back in (0, 1)
        ]
        rows = builder.add("ADD", pair, (ANY, 1, UNITS))
    flat = builder.add("RESHAPE", [rows, builder.ints([times, UNITS])], (ANY, UNITS))
    return builder.finish([builder.add("SOFTMAX", [flat], (ANY, UNITS), beta=1.0)])
