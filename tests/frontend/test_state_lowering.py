"""Lowering, passes and linking of variables and of the state of LSTMs; no device is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

import tflgpu
from tests.frontend.stateful_models import (
    SHAPE,
    Array,
    assign,
    counter,
    exchange,
    first_values,
    handle,
    never_assigned,
    normal,
    read,
    replaced_rows,
    variable_tensor,
    window,
)
from tests.ops.case import Net
from tests.ops.rows.recurrent import EVERYTHING, Lstm, operator_inputs, weights
from tests.support.models import WITHOUT_KERNEL, Builder
from tests.support.planning import obstacles_of, plan_of, templates
from tests.support.targets import CPU, H200
from tflgpu.codegen.link import link
from tflgpu.frontend.frontend import lower_model
from tflgpu.frontend.lower import lower
from tflgpu.graph.ir import EpilogueOp, Graph, Node, State, Tensor, Value, verify
from tflgpu.model.reader import read_model
from tflgpu.model.tensor_info import Quantization
from tflgpu.options import Interface, Options
from tflgpu.passes import optimize


def states_of(data: bytes) -> list[bool]:
    """For each state whether the kernels write its next value in place."""
    plan = plan_of(data, CPU)
    executable = link(plan, templates(plan))
    return [state.next is None for state in executable.states]


def test_states_are_written_in_place_where_nothing_reads_them_later() -> None:
    assert states_of(counter()) == [True]  # its old value is an output, which is copied first
    assert states_of(variable_tensor()) == [True]
    assert states_of(window()) == [True]
    # A copy of one over the other destroys what the second needs, which goes over what the first has no more use for.
    assert sorted(states_of(exchange())) == [False, True]
    assert states_of(never_assigned()) == []
    assert states_of(replaced_rows()) == [True, False]


def test_half_precision_rounds_what_only_takes_the_place_of_other_elements() -> None:
    """A state that is computed from its last value would be rounded in every run. No row of an output is."""
    assert types_of(variable_tensor()) == [("float", "float")]
    assert types_of(replaced_rows()) == [("float", "float"), ("half", "half")]


def test_both_values_of_a_state_have_one_type() -> None:
    """A node looks for a place in the last one only."""
    builder, shape = Builder(), (4, 6)
    row, place, ends = builder.input((1, 6)), builder.input((2,), "int32"), []
    first_values(builder, {"rows": normal(*shape)})
    old = read(builder, "rows", shape)
    assign(builder, "rows", builder.add("DYNAMIC_UPDATE_SLICE", [old, row, place], shape))
    ends.append(builder.tensor((4,), "int64"))
    builder.op("ARG_MAX", [old, builder.ints(1)], ends, {"output_type": "int64"})
    assert types_of(builder.finish(ends)) == [("float", "float")]


def types_of(data: bytes) -> list[tuple[str, str]]:
    """The types of each state's last and next value in half precision."""
    plan = plan_of(data, H200)
    return [(plan.storage[state.read].type, plan.storage[state.written].type) for state in plan.graph.states]


def test_a_kernel_that_replaces_rows_in_place_leaves_the_others_alone() -> None:
    plan = plan_of(replaced_rows(), CPU)
    assert templates(plan).count("movement/overwrite") == 1


def obstacles(builder: Builder, outputs: Sequence[int]) -> tuple[str, ...]:
    return lower(read_model(builder.finish(outputs))).obstacles


def test_a_variable_that_nothing_assigns_is_kept_for_other_signatures() -> None:
    """Reading it takes no kernel; what is assigned before it is read has a state that no node reads."""
    builder, other = Builder(), Builder()
    end = builder.add("TANH", [read(builder, "s")])
    value = other.input(SHAPE)
    assign(other, "s", value)
    builder.subgraph(other, [read(other, "s")], signature="set")
    data = read_model(builder.finish([end], signature="get"))
    got = lower(data)
    (state,) = got.graph.states
    assert got.obstacles == () and state.held and state.read == state.written
    put = lower_model(data, Options(interface=Interface(signature="set")), None).lowered
    (state,) = put.graph.states
    assert put.obstacles == () and state.held and state.read not in put.graph.consumers


def test_shapes_and_types_of_variables_stay() -> None:
    builder = Builder()
    first_values(builder, {"s": normal(*SHAPE)})
    assign(builder, "s", builder.input((1, 2)))
    read(builder, "s", SHAPE, "int8", quantization=Quantization([0.5], [0]))
    found = obstacles(builder, [])
    assert len(found) == 3 and all("variable 's' cannot be kept: it holds" in each for each in found)
    other = Builder()
    first_values(other, {"s": normal(*SHAPE)})
    assign(other, "s", other.input((9, 9)))
    found = obstacles(other, [read(other, "s")])
    assert "its values have shapes [2, 3, 5] and [9, 9]" in found[0]


def test_first_values_must_be_constants() -> None:
    builder, first = Builder(), Builder()
    assign(first, "s", first.input(SHAPE))
    builder.op("CALL_ONCE", [], [], {"init_subgraph_index": builder.subgraph(first)})
    (found,) = obstacles(builder, [])
    assert found == "operator 0 CALL_ONCE: variable 's' cannot be kept: its first value is no constant"


def test_obstacles_in_the_first_subgraph_are_named() -> None:
    builder, first = Builder(), Builder()
    assign(first, "s", first.without_kernel(first.constant(normal(*SHAPE))))
    builder.op("CALL_ONCE", [], [], {"init_subgraph_index": builder.subgraph(first)})
    (found,) = obstacles(builder, [])
    assert f"its first value is no constant: operator 0 {WITHOUT_KERNEL}" in found


def test_a_handle_from_elsewhere_is_an_obstacle() -> None:
    builder = Builder()
    y = builder.add("READ_VARIABLE", [builder.input((), "resource")], SHAPE)
    (found,) = obstacles(builder, [y])
    assert "the handle of a variable does not come from a VAR_HANDLE" in found


def test_a_call_of_a_subgraph_that_is_not_there_is_an_error() -> None:
    builder = Builder()
    builder.op("CALL_ONCE", [], [], {"init_subgraph_index": 3})
    with pytest.raises(tflgpu.ModelError, match="operator 0 CALL_ONCE calls subgraph 3; the model has 1"):
        lower(read_model(builder.finish([])))


def lstm_obstacles(lstm: Lstm, changes: Mapping[int, Array | None]) -> str:
    """The obstacles of an LSTM of one time after some of its inputs were replaced, or left out."""
    net = Net(seed=1)
    x, state = net.input(normal(2, 3)), (net.variable((2, lstm.outputs)), net.variable((2, lstm.cells)))
    inputs = operator_inputs(x, weights(net, lstm, 3), *state)
    for position, value in changes.items():
        inputs[position] = None if value is None else net.constant(value)
    net.output(net.op("LSTM", inputs, np.zeros((2, lstm.outputs)), lstm.options))
    return obstacles_of(net.case().model)


@pytest.mark.parametrize(
    ("lstm", "changes", "words"),
    [
        (Lstm(5, 5), {}, ""),
        (Lstm(5, 5), {0: normal(2, 1, 3)}, "[2, 1, 3], [5, 3] and [5, 5] do not have 2, 2, and 1 or 2 axes"),
        (Lstm(5, 5), {0: normal(2, 4)}, "its weights are for 3 inputs, but its input has shape [2, 4]"),
        (Lstm(5, 5), {3: normal(5, 4)}, "input 3 has shape [5, 4]; [5, 3] was expected"),
        (Lstm(5, 5), {12: None}, "it has weights for an input gate, but not input 12"),
        (Lstm(5, 5), {10: normal(5)}, "it has peephole weights in inputs [10]; all of [9, 10, 11] or none"),
        (EVERYTHING, {22: None}, "it has factors of layer norm in inputs [21, 23]; all of [21, 22, 23] or none"),
        (EVERYTHING, {16: None}, "it has no projection weights, but 6 cells, 7 outputs, or a projection bias"),
        (Lstm(5, 5), {19: normal(3, 5)}, "its state, input 19, has shape [3, 5]; [2, 5] was expected"),
        (Lstm(1500, 1500), {}, "its 1500 cells and 1500 outputs need more than the 32 KiB of local memory"),
        (Lstm(5, 5, cell_clip=-1.0), {}, "it clips cells and projection at [-1.0, 0.0]; no negative"),
    ],
)
def test_obstacles_of_lstms(lstm: Lstm, changes: Mapping[int, Array | None], words: str) -> None:
    found = lstm_obstacles(lstm, changes)
    assert words in found if words else found == ""


def one_state(written: int = 1, outputs: tuple[int, ...] = (2,), copies: int = 1) -> Graph:
    """A state that a node doubles, and an output of which no state knows."""
    tensors = {i: Tensor(i, f"t{i}", (1, 4)) for i in range(2 + copies)}
    nodes = (
        Node("map", (0,), 1, epilogue=(EpilogueOp("add", (Value(0), Value(0))),)),
        Node("map", (0,), 2, epilogue=(EpilogueOp("tanh", (Value(0),)),)),
    )
    reads = (0, *range(3, 2 + copies))
    return Graph(tensors, nodes, (), outputs, tuple(State("s", read, written) for read in reads))


def test_passes_keep_states() -> None:
    graph = optimize(one_state())
    assert graph.states == one_state().states
    assert {n.output for n in graph.nodes} == {1, 2}


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        (replace(one_state(written=3), tensors=one_state().tensors | {3: Tensor(3, "", (1, 4))}), "no node computes"),
        (one_state(outputs=(1,)), "not its alone"),
        (one_state(copies=2), "not its alone"),
        (replace(one_state(), inputs=(0,)), "two of inputs and states"),
        (replace(one_state(), tensors=one_state().tensors | {1: Tensor(1, "", (1, 5))}), "another type"),
    ],
)
def test_states_are_verified(graph: Graph, words: str) -> None:
    verify(one_state())
    with pytest.raises(AssertionError, match=words):
        verify(graph)


def test_a_handle_cannot_be_an_output() -> None:
    builder = Builder()
    with pytest.raises(tflgpu.ModelError, match="is the handle of a variable, which has no value"):
        lower(read_model(builder.finish([handle(builder, "s")])))
