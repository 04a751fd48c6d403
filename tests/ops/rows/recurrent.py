"""Rows of the LSTMs. What they keep from one run to the next is in ``tests/frontend/test_state.py``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.ops.case import Net, Row, Tensor
from tests.ops.reference import ACTIVATIONS, logistic
from tests.ops.strategies import BATCH, BOOL

Array = NDArray[Any]

CELLS = st.sampled_from((5, 1, 3, 4, 8, 17, 20, 36))
DEPTH = st.sampled_from((3, 1, 4, 6, 9))  # of the inputs
TIMES = st.integers(1, 4)

# Where TFLite's operators have the weights of the input, forget, cell and output gate, and the rest.
WEIGHTS, RECURRENT, BIASES, NORMS = range(1, 5), range(5, 9), range(12, 16), range(20, 24)
PEEPHOLES = {0: 9, 1: 10, 3: 11}
PROJECTION, PROJECTION_BIAS, HIDDEN, CELL = 16, 17, 18, 19
SAMPLED_ACTIVATIONS = st.sampled_from(("TANH", "NONE", "RELU", "RELU6"))


@dataclass(frozen=True)
class Lstm:
    """Which optional parts there are. A clip of 0 is none."""

    cells: int
    outputs: int
    input_gate: bool = True
    peephole: bool = False
    layer_norm: bool = False
    projection: bool = False
    projection_bias: bool = False
    diagonal: bool = False
    activation: str = "TANH"
    cell_clip: float = 0.0
    projection_clip: float = 0.0

    @property
    def gates(self) -> range:
        return range(0 if self.input_gate else 1, 4)

    @property
    def options(self) -> dict[str, object]:
        return {
            "fused_activation_function": self.activation,
            "cell_clip": self.cell_clip,
            "proj_clip": self.projection_clip,
        }


# Odd sizes, and every optional part.
EVERYTHING = Lstm(
    cells=6,
    outputs=7,
    input_gate=False,
    peephole=True,
    layer_norm=True,
    projection=True,
    projection_bias=True,
    cell_clip=0.6,
    projection_clip=0.4,
)


def draw_lstm(net: Net, diagonal: bool = False) -> Lstm:
    """Any combination of optional parts. A diagonal matrix of recurrent weights is square."""
    cells, projection = net.draw(CELLS), net.draw(BOOL)
    lstm = Lstm(
        cells,
        outputs=net.draw(CELLS) if projection and not diagonal else cells,
        input_gate=net.draw(BOOL),
        peephole=net.draw(BOOL),
        layer_norm=net.draw(BOOL),
        projection=projection,
        projection_bias=projection and net.draw(BOOL),
        diagonal=diagonal,
        activation=net.draw(SAMPLED_ACTIVATIONS),
        cell_clip=net.draw(st.sampled_from((0.0, 0.6))),
        projection_clip=net.draw(st.sampled_from((0.0, 0.4))),
    )
    if lstm.activation == "NONE":
        net.litert_differs = "it multiplies the output gate by what its memory has"
    return lstm


def weights(net: Net, lstm: Lstm, depth: int) -> dict[int, Tensor]:
    """The constant inputs by their positions."""
    cells, outputs = lstm.cells, lstm.outputs
    shapes: dict[int, tuple[int, ...]] = {}
    for gate in lstm.gates:
        shapes |= {WEIGHTS[gate]: (cells, depth), BIASES[gate]: (cells,)}
        shapes[RECURRENT[gate]] = (cells,) if lstm.diagonal else (cells, outputs)
        if lstm.peephole and gate in PEEPHOLES:
            shapes[PEEPHOLES[gate]] = (cells,)
        if lstm.layer_norm:
            shapes[NORMS[gate]] = (cells,)
    if lstm.projection:
        shapes[PROJECTION] = (outputs, cells)
    if lstm.projection_bias:
        shapes[PROJECTION_BIAS] = (outputs,)
    return {position: net.constant(net.normal(shape, shape[-1] ** -0.5)) for position, shape in shapes.items()}


def run_lstm(
    lstm: Lstm, known: Mapping[int, Array], x: Array, hidden: Array, cell: Array
) -> tuple[Array, Array, Array]:
    """TFLite's LSTM (lite/kernels/lstm_eval.cc) over ``x`` [time, batch, inputs] -> outputs, last hidden, last cell."""
    activate = ACTIVATIONS[lstm.activation]

    def gate(number: int, step: Array, cell: Array) -> Array:
        recurrent = known[RECURRENT[number]]
        total = step @ known[WEIGHTS[number]].T
        total = total + (hidden * recurrent if lstm.diagonal else hidden @ recurrent.T)
        if lstm.peephole and number in PEEPHOLES:
            total = total + cell * known[PEEPHOLES[number]]
        if lstm.layer_norm:
            off = total - total.mean(-1, keepdims=True)
            total = off / np.sqrt((off**2).mean(-1, keepdims=True) + 1e-8) * known[NORMS[number]]
        total = total + known[BIASES[number]]
        return activate(total) if number == 2 else logistic(total)

    outputs = []
    for step in x:
        forget = gate(1, step, cell)
        taken = gate(0, step, cell) if lstm.input_gate else 1 - forget
        cell = _clipped(forget * cell + taken * gate(2, step, cell), lstm.cell_clip)
        hidden = gate(3, step, cell) * activate(cell)
        if lstm.projection:
            hidden = _clipped(hidden @ known[PROJECTION].T + known.get(PROJECTION_BIAS, 0), lstm.projection_clip)
        outputs.append(hidden)
    return np.stack(outputs), hidden, cell


def _clipped(x: Array, limit: float) -> Array:
    return np.clip(x, -limit, limit) if limit else x


def operator_inputs(x: Tensor, constants: Mapping[int, Tensor], hidden: Tensor, cell: Tensor) -> list[Tensor | None]:
    """In TFLite's order: 24, or 20 if layer norm has none."""
    given = {0: x, HIDDEN: hidden, CELL: cell, **constants}
    return [given.get(position) for position in range(24 if max(given) >= NORMS[0] else 20)]


def sequence_lstm(net: Net) -> Tensor:
    lstm = draw_lstm(net, net.draw(BOOL))
    return sequence_node(net, lstm, net.draw(TIMES), net.draw(BATCH), net.draw(DEPTH), time_major=net.draw(BOOL))


def sequence_node(net: Net, lstm: Lstm, times: int, batch: int, depth: int, *, time_major: bool) -> Tensor:
    """An LSTM over one more input, with a state of its own."""
    constants = weights(net, lstm, depth)
    x = net.input(net.normal((times, batch, depth) if time_major else (batch, times, depth)))
    hidden, cell = net.variable((batch, lstm.outputs)), net.variable((batch, lstm.cells))
    known = {position: tensor.value for position, tensor in constants.items()}
    steps = x.value if time_major else x.value.swapaxes(0, 1)
    value, _, _ = run_lstm(lstm, known, steps, hidden.value, cell.value)
    return net.op(
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        operator_inputs(x, constants, hidden, cell),
        value if time_major else value.swapaxes(0, 1),
        {**lstm.options, "time_major": time_major, "diagonal_recurrent_tensors": lstm.diagonal},
        version=4 if lstm.diagonal else 1,
        terms=depth + lstm.outputs,
    )


def full_lstm(net: Net) -> Tensor:
    """Two that share one state: the second begins with what the first left."""
    lstm, batch, depth = draw_lstm(net), net.draw(BATCH), net.draw(DEPTH)
    hidden, cell = net.variable((batch, lstm.outputs)), net.variable((batch, lstm.cells))
    h, c = hidden.value, cell.value
    results = []
    for _ in range(2):
        constants, x = weights(net, lstm, depth), net.input(net.normal((batch, depth)))
        known = {position: tensor.value for position, tensor in constants.items()}
        value, h, c = run_lstm(lstm, known, x.value[None], h, c)
        inputs = operator_inputs(x, constants, hidden, cell)
        results.append(net.op("LSTM", inputs, value[0], lstm.options, terms=depth + lstm.outputs))
    net.output(results[0])
    return results[1]


def basic_lstm(net: Net) -> Tensor:
    """The fused kind: weights of all gates in one tensor, state given and taken, and by-products as outputs."""
    batch, cells, depth = net.draw(BATCH), net.draw(CELLS), net.draw(DEPTH)
    x, hidden, cell = (net.input(net.normal((batch, size))) for size in (depth, cells, cells))
    weight = net.constant(net.normal((4 * cells, depth + cells), (depth + cells) ** -0.5))
    bias = net.constant(net.normal((4 * cells,)))
    joined = np.concatenate([x.value, hidden.value], 1)
    product = joined @ weight.value.T + bias.value
    taken, candidate, forget, shown = np.split(product, 4, 1)
    new_cell = logistic(taken) * np.tanh(candidate) + logistic(forget) * cell.value
    values = [logistic(shown) * np.tanh(new_cell), new_cell, joined, product]
    options = {"fused_activation_function": "TANH", "kernel_type": "BASIC"}
    results = net.ops("LSTM", [x, hidden, weight, bias, cell], values, options)
    for result in results[1 : net.draw(st.integers(1, 4))]:
        net.output(result)
    return results[0]


ROWS: Sequence[Row] = (
    Row("unidirectional_sequence_lstm", "UNIDIRECTIONAL_SEQUENCE_LSTM", sequence_lstm),
    Row("lstm_full", "LSTM", full_lstm),
    Row("lstm_basic", "LSTM", basic_lstm),
)


def replaced_rows(net: Net) -> Tensor:
    """Some rows of a variable, which begins as zeros and is read again when they are there."""
    table, rows = net.variable((6, 3, 5)), net.input(net.normal((2, 3, 5)))
    place = net.input(np.array([3, 9, 9]))  # the others are kept at 0, where the rows fit
    value = table.value.copy()
    value[3:5] = rows.value
    table = net.change(table, "DYNAMIC_UPDATE_SLICE", [table, rows, place], value)
    return net.op("TANH", [table], np.tanh(value))
