"""What a model keeps from one run to the next: variables of both kinds and the state of LSTMs, against LiteRT."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from numpy.typing import NDArray

import tflgpu
from tests.ops.case import Net
from tests.ops.rows.recurrent import EVERYTHING, Lstm, operator_inputs, sequence_node, weights
from tests.ops.tolerance import ARITHMETIC, check
from tflgpu.codegen.link import link
from tflgpu.compiler import plan_model
from tflgpu.frontend.lower import lower
from tflgpu.graph.ir import EpilogueOp, Graph, Node, State, Tensor, Value, verify
from tflgpu.model.file_tables import Quantization
from tflgpu.model.reader import read_model
from tflgpu.model.writer import ModelBuilder
from tflgpu.options import Options
from tflgpu.passes import optimize
from tflgpu.target import Target

interpreter = pytest.importorskip("ai_edge_litert.interpreter")

Array = NDArray[Any]
Runs = list[list[Array]]

SHAPE = (2, 3, 5)
CPU = Target(family="cpu", compute_units=2, storage="float")


def handle(builder: ModelBuilder, name: str) -> int:
    index = builder.tensor((), "resource")
    builder.op("VAR_HANDLE", [], [index], {"container": "", "shared_name": name})
    return index


def read(builder: ModelBuilder, name: str, shape: Sequence[int] = SHAPE, dtype: str = "float32", **more: Any) -> int:
    index = builder.tensor(shape, dtype, **more)
    builder.op("READ_VARIABLE", [handle(builder, name)], [index])
    return index


def assign(builder: ModelBuilder, name: str, value: int) -> None:
    builder.op("ASSIGN_VARIABLE", [handle(builder, name), value], [])


def first_values(builder: ModelBuilder, values: Mapping[str, Array], **more: Any) -> None:
    """A CALL_ONCE that gives variables these values."""
    first = ModelBuilder()
    for name, value in values.items():
        assign(first, name, first.constant(value, **more))
    builder.op("CALL_ONCE", [], [], {"init_subgraph_index": builder.subgraph(first)})


def binary(
    builder: ModelBuilder, code: str, x: int, y: int, shape: Sequence[int] = SHAPE, dtype: str = "float32"
) -> int:
    result = builder.tensor(shape, dtype)
    builder.op(code, [x, y], [result], {"fused_activation_function": "NONE"})
    return result


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def sum_of_inputs() -> bytes:
    """The new value is an output as well."""
    builder = ModelBuilder()
    x = builder.input(SHAPE)
    first_values(builder, {"sum": normal(*SHAPE)})
    total = binary(builder, "ADD", read(builder, "sum"), x)
    assign(builder, "sum", total)
    return builder.finish([total])


def delay() -> bytes:
    """An input becomes the state, and the state an output."""
    builder = ModelBuilder()
    x = builder.input(SHAPE)
    first_values(builder, {"last": normal(*SHAPE)})
    last = read(builder, "last")
    assign(builder, "last", x)
    return builder.finish([last])


def exchange() -> bytes:
    """Two variables change places, so that neither may be overwritten before the other has been read."""
    builder = ModelBuilder()
    x = builder.input(SHAPE)
    first_values(builder, {"a": normal(*SHAPE, seed=1), "b": normal(*SHAPE, seed=2)})
    a, b = read(builder, "a"), read(builder, "b")
    assign(builder, "a", b)
    assign(builder, "b", a)
    return builder.finish([binary(builder, "MUL", x, binary(builder, "SUB", a, b))])


def one_value_for_two() -> bytes:
    """Two variables get the same value, a third one a constant and a fourth one its own value again."""
    builder = ModelBuilder()
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
    builder = ModelBuilder()
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
    builder = ModelBuilder()
    x = builder.input((1, 2, 1, 6))
    first_values(builder, {"rows": normal(1, 3, 1, 6)})
    rows, kept = builder.tensor((1, 5, 1, 6)), builder.tensor((1, 3, 1, 6))
    old = read(builder, "rows", (1, 3, 1, 6))
    builder.op("CONCATENATION", [old, x], [rows], {"axis": 1, "fused_activation_function": "NONE"})
    bounds = [builder.constant(np.array(b, np.int32)) for b in ([0, 2, 0, 0], [1, 5, 1, 6], [1, 1, 1, 1])]
    builder.op("STRIDED_SLICE", [rows, *bounds], [kept])
    assign(builder, "rows", kept)
    return builder.finish([rows])


def seen_in_another_shape() -> bytes:
    """Views of the state, and a view as its next value."""
    builder = ModelBuilder()
    x = builder.input((1, 1, 6, 4))
    first_values(builder, {"s": normal(1, 2, 3, 4)})
    flat, back = builder.tensor((1, 1, 6, 4)), builder.tensor((1, 2, 3, 4))
    state = read(builder, "s", (1, 2, 3, 4))
    builder.op("RESHAPE", [state, builder.constant(np.array([1, 1, 6, 4], np.int32))], [flat])
    total = binary(builder, "ADD", flat, x, (1, 1, 6, 4))
    builder.op("RESHAPE", [total, builder.constant(np.array([1, 2, 3, 4], np.int32))], [back])
    assign(builder, "s", back)
    return builder.finish([flat, back])


def counter() -> bytes:
    builder = ModelBuilder()
    x = builder.input((1, 3), "int32")
    first_values(builder, {"count": np.array([[1, -2, 3]], np.int32)})
    count = read(builder, "count", (1, 3), "int32")
    assign(builder, "count", binary(builder, "ADD", count, x, (1, 3), "int32"))
    return builder.finish([count])


def quantized() -> bytes:
    builder, grid = ModelBuilder(), Quantization([0.25], [3])
    x = builder.input(SHAPE, "int8", quantization=grid)
    first = np.random.default_rng(0).integers(-128, 128, SHAPE).astype(np.int8)
    first_values(builder, {"last": first}, quantization=grid)
    last = read(builder, "last", SHAPE, "int8", quantization=grid)
    assign(builder, "last", x)
    return builder.finish([last])


def variable_tensor() -> bytes:
    """An operator whose output is a variable tensor."""
    builder = ModelBuilder()
    x, kept = builder.input(SHAPE), builder.tensor(SHAPE, is_variable=True)
    total = binary(builder, "ADD", kept, x)
    builder.op("TANH", [total], [kept])
    return builder.finish([total])


def never_assigned() -> bytes:
    builder = ModelBuilder()
    x = builder.input(SHAPE)
    first_values(builder, {"s": normal(*SHAPE)})
    return builder.finish([binary(builder, "ADD", read(builder, "s"), x), read(builder, "s")])


def _nothing_to_draw(_: st.SearchStrategy[Any]) -> Any:
    raise AssertionError("these models are fixed")


def sequence(lstm: Lstm) -> bytes:
    net = Net(_nothing_to_draw, seed=1)
    net.output(sequence_node(net, lstm, times=3, batch=2, depth=5, time_major=True))
    return net.case(ARITHMETIC).model


def single_step(lstm: Lstm) -> bytes:
    """The state tensors have another rank than the operator's own."""
    net = Net(_nothing_to_draw, seed=1)
    x = net.input(normal(2, 5))
    state = net.variable((1, 2, lstm.outputs)), net.variable((1, 2, lstm.cells))
    inputs = operator_inputs(x, weights(net, lstm, 5), *state)
    net.output(net.op("LSTM", inputs, np.zeros((2, lstm.outputs)), lstm.options))
    return net.case(ARITHMETIC).model


MODELS: dict[str, Callable[[], bytes]] = {
    "sum_of_inputs": sum_of_inputs,
    "delay": delay,
    "exchange": exchange,
    "one_value_for_two": one_value_for_two,
    "in_the_order_of_the_file": in_the_order_of_the_file,
    "window": window,
    "seen_in_another_shape": seen_in_another_shape,
    "counter": counter,
    "quantized": quantized,
    "variable_tensor": variable_tensor,
    "never_assigned": never_assigned,
    "plain_sequence": lambda: sequence(Lstm(9, 9)),
    "sequence_with_everything": lambda: sequence(EVERYTHING),
    "plain_step": lambda: single_step(Lstm(9, 9)),
    "step_with_everything": lambda: single_step(EVERYTHING),
}


def inputs_of(model: bytes, runs: int) -> Runs:
    rng = np.random.default_rng(3)
    graph = read_model(model).subgraphs[0]
    tensors = [graph.tensors[t] for t in graph.inputs]

    def value(shape: tuple[int, ...], dtype: str) -> Array:
        return (rng.integers(-100, 100, shape) if "int" in dtype else rng.standard_normal(shape)).astype(dtype)

    return [[value(t.shape, t.dtype) for t in tensors] for _ in range(runs)]


def litert_runs(model: bytes, runs: Runs) -> Runs:
    """The outputs of each run, by LiteRT's own kernels."""
    peer = interpreter.Interpreter(model_content=model, num_threads=1)
    peer.allocate_tensors()
    results = []
    for arrays in runs:
        for detail, array in zip(peer.get_input_details(), arrays, strict=True):
            peer.set_tensor(detail["index"], array)
        peer.invoke()
        results.append([peer.get_tensor(d["index"]) for d in peer.get_output_details()])
    return results


def check_runs(model: tflgpu.CompiledModel, runs: Runs, expected: Runs, precision: str) -> None:
    for number, (arrays, results) in enumerate(zip(runs, expected, strict=True)):
        for got, result in zip(model.run(arrays).values(), results, strict=True):
            exact = result.astype(np.float64) if result.dtype.kind == "f" else result
            check(got, exact, ARITHMETIC, precision, f"run {number}")


@pytest.mark.parametrize("kernels", ["cpu", "gpu"])
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("name", MODELS)
def test_runs_follow_litert(name: str, precision: str, kernels: str, device_name: str) -> None:
    data = MODELS[name]()
    runs = inputs_of(data, 5)
    expected = litert_runs(data, runs)
    options = Options(precision=precision, kernels=kernels, device=device_name, fallback="forbid")
    model = tflgpu.compile(data, options)
    check_runs(model, runs, expected, precision)
    model.reset_state()
    check_runs(model, runs, expected, precision)


def test_each_model_has_its_own_state(device_name: str) -> None:
    data = sum_of_inputs()
    options = Options(device=device_name, precision="fp32")
    first, second = tflgpu.compile(data, options), tflgpu.compile(data, options)
    runs = inputs_of(data, 3)
    expected = litert_runs(data, runs)
    first.run(runs[0])
    check_runs(second, runs, expected, "fp32")
    check_runs(pickle.loads(pickle.dumps(second)), runs, expected, "fp32")
    check_runs(first, runs[1:], expected[1:], "fp32")


def test_half_precision_does_not_lose_small_steps(device_name: str) -> None:
    """At 1000 neighbouring halves are 0.5 apart: a sum that is rounded after each step would stay."""
    builder = ModelBuilder()
    x = builder.input((1, 6))
    first_values(builder, {"sum": np.full((1, 6), 1000, np.float32)})
    total, shown = binary(builder, "ADD", read(builder, "sum", (1, 6)), x, (1, 6)), builder.tensor((1, 6))
    assign(builder, "sum", total)
    builder.op("RELU", [total], [shown])
    model = tflgpu.compile(builder.finish([shown]), Options(device=device_name, precision="fp16"))
    for _ in range(8):
        (result,) = model.run(np.full((1, 6), 0.125, np.float32)).values()
    assert (result == 1001).all()


def states_of(data: bytes) -> list[bool]:
    """For each state whether the kernels write its next value in place."""
    _, plan = plan_model(data, Options(), CPU)
    executable = link(plan, [k.kernel.template for k in plan.kernels])
    return [state.next is None for state in executable.states]


def test_states_are_written_in_place_where_nothing_reads_them_later() -> None:
    assert states_of(counter()) == [False]  # its old value is an output, which is copied last
    assert states_of(variable_tensor()) == [True]
    assert states_of(window()) == [True]
    # A copy of one over the other destroys what the second needs, which goes over what the first has no more use for.
    assert sorted(states_of(exchange())) == [False, True]
    assert states_of(never_assigned()) == []


def test_a_closed_model_has_no_state_to_reset(device_name: str) -> None:
    model = tflgpu.compile(sum_of_inputs(), Options(device=device_name))
    model.close()
    with pytest.raises(ValueError, match="closed"):
        model.reset_state()


def obstacles(builder: ModelBuilder, outputs: Sequence[int]) -> tuple[str, ...]:
    return lower(read_model(builder.finish(outputs))).obstacles


def test_what_no_call_initializes_cannot_be_read() -> None:
    """LiteRT reads memory that nothing has written."""
    builder = ModelBuilder()
    (found,) = obstacles(builder, [read(builder, "s")])
    assert found == "operator 1 READ_VARIABLE: it reads variable 's', which no CALL_ONCE initializes"


def test_what_is_assigned_before_it_is_read_needs_no_first_value() -> None:
    builder = ModelBuilder()
    assign(builder, "s", builder.input(SHAPE))
    lowered = lower(read_model(builder.finish([read(builder, "s")])))
    assert lowered.obstacles == () and lowered.graph.states == ()


def test_shapes_and_types_of_variables_stay() -> None:
    builder = ModelBuilder()
    first_values(builder, {"s": normal(*SHAPE)})
    assign(builder, "s", builder.input((1, 2)))
    read(builder, "s", SHAPE, "int8", quantization=Quantization([0.5], [0]))
    shape, kind = obstacles(builder, [])
    assert "it assigns shape [1, 2] to variable 's' of shape [2, 3, 5]" in shape
    assert "variable 's' holds float32 with quantization None, but tensor" in kind


def test_first_values_must_be_constants() -> None:
    builder, first = ModelBuilder(), ModelBuilder()
    assign(first, "s", first.input(SHAPE))
    builder.op("CALL_ONCE", [], [], {"init_subgraph_index": builder.subgraph(first)})
    (found,) = obstacles(builder, [])
    assert found == "operator 0 CALL_ONCE: the first value of variable 's' is no constant"


def test_obstacles_in_the_first_subgraph_are_named() -> None:
    builder, first = ModelBuilder(), ModelBuilder()
    bits = first.tensor(SHAPE, "int32")
    first.op("BITCAST", [first.constant(normal(*SHAPE))], [bits])
    assign(first, "s", bits)
    builder.op("CALL_ONCE", [], [], {"init_subgraph_index": builder.subgraph(first)})
    (found,) = obstacles(builder, [])
    assert found.startswith("operator 0 CALL_ONCE: in its subgraph 1, operator 0 BITCAST")


def test_a_handle_from_elsewhere_is_an_obstacle() -> None:
    builder = ModelBuilder()
    y = builder.tensor(SHAPE)
    builder.op("READ_VARIABLE", [builder.input((), "resource")], [y])
    (found,) = obstacles(builder, [y])
    assert "its handle does not come from a VAR_HANDLE" in found


def test_a_call_of_a_subgraph_that_is_not_there_is_an_error() -> None:
    builder = ModelBuilder()
    builder.op("CALL_ONCE", [], [], {"init_subgraph_index": 3})
    with pytest.raises(tflgpu.ModelError, match="a CALL_ONCE calls subgraph 3 of 1"):
        lower(read_model(builder.finish([])))


def test_state_on_the_cpu(device_name: str) -> None:
    """An operator that the device lacks takes its variable along to the CPU, where it can be reset as well."""
    builder = ModelBuilder()
    x = builder.input(SHAPE)
    first_values(builder, {"s": normal(*SHAPE)})
    total = binary(builder, "ADD", read(builder, "s"), x)
    bits, back, end = builder.tensor(SHAPE, "int32"), builder.tensor(SHAPE), builder.tensor(SHAPE)
    builder.op("BITCAST", [total], [bits])
    builder.op("BITCAST", [bits], [back])
    assign(builder, "s", back)
    builder.op("TANH", [total], [end])
    data = builder.finish([end])
    with pytest.warns(tflgpu.FallbackWarning):
        model = tflgpu.compile(data, Options(device=device_name, precision="fp32"))
    on_device = [o.code for o in model.report.operators if o.device == "device"]
    assert on_device == ["TANH"]
    runs = inputs_of(data, 3)
    expected = litert_runs(data, runs)
    for _ in range(2):
        check_runs(model, runs, expected, "fp32")
        model.reset_state()


def test_lstm_state_on_the_cpu(device_name: str) -> None:
    data = sequence(Lstm(9, 9))
    options = Options(device=device_name, precision="fp32", cpu_ops=["UNIDIRECTIONAL_SEQUENCE_LSTM"])
    with pytest.warns(tflgpu.FallbackWarning):
        model = tflgpu.compile(data, options)
    runs = inputs_of(data, 3)
    expected = litert_runs(data, runs)
    for _ in range(2):
        check_runs(model, runs, expected, "fp32")
        model.reset_state()


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("name", ["trained_lstm", "keras_lstm_mnist_ptq"])
def test_real_lstms(name: str, precision: str, device_name: str, shared: Path) -> None:
    """Images of digits would do as well: what matters is that the state goes on from one to the next."""
    data = (shared / "models" / f"{name}.tflite").read_bytes()
    model = tflgpu.compile(data, Options(precision=precision, device=device_name, fallback="forbid"))
    (info,) = model.inputs
    rng = np.random.default_rng(0)
    strokes = [rng.random(info.shape) * (rng.random(info.shape) < 0.2) for _ in range(6)]
    scale = 255 if info.dtype == "uint8" else 1
    runs = [[(scale * s).astype(info.dtype)] for s in strokes]
    expected = litert_runs(data, runs)
    assert len({int(result.argmax()) for (result,) in expected}) > 1
    for _ in range(2):
        for arrays, (result,) in zip(runs, expected, strict=True):
            (got,) = model.run(arrays).values()
            if info.dtype == "uint8":  # one quantum of a logit is up to 8 of a probability
                assert np.abs(got.astype(int) - result).max() <= 9
            else:
                np.testing.assert_allclose(got, result, atol=1e-5 if precision == "fp32" else 2e-2)
        model.reset_state()


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_wake_word_listens(precision: str, device_name: str, shared: Path) -> None:
    """25 runs of hey_jarvis, which has six variables; its logits and the last of its activations, in quanta."""
    path = shared / "models" / "hey_jarvis.tflite"
    operators = tflgpu.inspect(path).operators
    names = [[o for o in operators if o.code == code][-1].inputs[0] for code in ("LOGISTIC", "DEPTHWISE_CONV_2D")]
    kinds = interpreter.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    peer = interpreter.Interpreter(
        str(path), num_threads=1, experimental_op_resolver_type=kinds, experimental_preserve_all_tensors=True
    )
    peer.allocate_tensors()
    places = {d["name"]: d["index"] for d in peer.get_tensor_details()}
    options = Options(precision=precision, device=device_name, fallback="forbid", outputs=names)
    model = tflgpu.compile(path, options)
    rng = np.random.default_rng(0)
    features = [np.clip(rng.normal(-40, 40, (1, 3, 40)), -128, 127).astype(np.int8) for _ in range(25)]
    expected = []
    for x in features:
        peer.set_tensor(peer.get_input_details()[0]["index"], x)
        peer.invoke()
        expected.append({name: peer.get_tensor(places[name]).astype(int) for name in names})
    assert len({int(e[names[0]].item()) for e in expected}) > 10, "the answers should depend on what came before"
    for _ in range(2):
        for x, results in zip(features, expected, strict=True):
            got = model.run(x)
            assert all(np.abs(got[name] - results[name]).max() <= 3 for name in names)
        model.reset_state()


def lstm_obstacles(lstm: Lstm, changes: Mapping[int, Array | None]) -> str:
    """What keeps an LSTM of one time off the device after some of its inputs were replaced, or left out."""
    net = Net(_nothing_to_draw, seed=1)
    x, state = net.input(normal(2, 3)), (net.variable((2, lstm.outputs)), net.variable((2, lstm.cells)))
    inputs = operator_inputs(x, weights(net, lstm, 3), *state)
    for position, value in changes.items():
        inputs[position] = None if value is None else net.constant(value)
    net.output(net.op("LSTM", inputs, np.zeros((2, lstm.outputs)), lstm.options))
    return "; ".join(lower(read_model(net.case(ARITHMETIC).model)).obstacles)


@pytest.mark.parametrize(
    ("lstm", "changes", "words"),
    [
        (Lstm(5, 5), {}, ""),
        (Lstm(5, 5), {8: None}, "it has 20 inputs where 20 or 24 are expected, and lacks those at [8]"),
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
        (one_state(written=0), "no node computes"),
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


def test_a_variable_tensor_can_be_an_output(device_name: str) -> None:
    """One that an operator changes, and one that no operator touches."""
    builder = ModelBuilder()
    x, kept, idle = builder.input(SHAPE), *(builder.tensor(SHAPE, is_variable=True) for _ in range(2))
    builder.op("TANH", [binary(builder, "ADD", kept, x)], [kept])
    model = tflgpu.compile(builder.finish([kept, idle]), Options(device=device_name, precision="fp32"))
    value = np.zeros(SHAPE)
    for seed in range(3):
        given = normal(*SHAPE, seed=seed)
        value = np.tanh(value + given)
        got, zeros = model.run(given).values()
        np.testing.assert_allclose(got, value, rtol=1e-5, atol=1e-6)
        assert not zeros.any()


def test_a_handle_cannot_be_an_output() -> None:
    builder = ModelBuilder()
    with pytest.raises(tflgpu.ModelError, match="is the handle of a variable, which has no value"):
        lower(read_model(builder.finish([handle(builder, "s")])))


def test_a_quantized_basic_lstm_is_within_one_quantum(device_name: str) -> None:
    """The ranges that TFLite's 8-bit kernel prescribes: activations of -1 to 1, a state of 16 bits from -16 to 16."""
    builder, rng, batch, depth, cells = ModelBuilder(), np.random.default_rng(0), 2, 5, 6
    activations, state, gates = Quantization([2**-7], [128]), Quantization([2**-11], [0]), Quantization([2**-12], [0])
    x, hidden = (builder.input((batch, n), "uint8", quantization=activations) for n in (depth, cells))
    matrix = rng.integers(60, 190, (4 * cells, depth + cells)).astype(np.uint8)
    weight = builder.constant(matrix, quantization=Quantization([0.01], [120]))
    offsets = rng.integers(-3000, 3000, 4 * cells).astype(np.int32)
    bias = builder.constant(offsets, quantization=Quantization([0.01 * 2**-7], [0]))
    cell = builder.input((batch, cells), "int16", quantization=state)
    outputs = [
        builder.tensor((batch, cells), "uint8", quantization=activations),
        builder.tensor((batch, cells), "int16", quantization=state),
        builder.tensor((batch, depth + cells), "uint8", quantization=activations),
        builder.tensor((batch, 4 * cells), "int16", quantization=gates),
    ]
    builder.op("LSTM", [x, hidden, weight, bias, cell], outputs, {"kernel_type": "BASIC"}, version=2)
    data = builder.finish(outputs)
    model = tflgpu.compile(data, Options(device=device_name, precision="fp32", fallback="forbid"))
    arrays = [
        rng.integers(0, 256, (batch, depth)).astype(np.uint8),
        rng.integers(0, 256, (batch, cells)).astype(np.uint8),
        rng.integers(-4000, 4000, (batch, cells)).astype(np.int16),
    ]
    (expected,) = litert_runs(data, [arrays])
    for got, result in zip(model.run(arrays).values(), expected, strict=True):
        assert got.dtype == result.dtype
        assert np.abs(got.astype(int) - result).max() <= 1
