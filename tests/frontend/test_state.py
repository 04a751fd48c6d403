"""State from one run to the next: variables of both kinds and the state of LSTMs, against LiteRT."""

from __future__ import annotations

import pickle
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest

import tflgpu
from tests.frontend.stateful_models import (
    MODELS,
    SHAPE,
    Array,
    Runs,
    assign,
    binary,
    first_values,
    from_constants,
    normal,
    read,
    sequence,
    sum_of_inputs,
)
from tests.ops.rows.recurrent import Lstm
from tests.ops.tolerance import ARITHMETIC, check
from tests.quick import on_first_runtime
from tests.support.models import WITHOUT_KERNEL, Builder
from tflgpu.model.reader import read_model
from tflgpu.model.tensor_info import Quantization
from tflgpu.options import CpuPart, Execution, Interface, Options

interpreter = pytest.importorskip("ai_edge_litert.interpreter")


# The precision in which the quick suite runs a family of kernels.


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


# For every second model, the case of the quick suite: kernels and precision.
QUICK = dict(zip(list(MODELS)[::2], cycle([("cpu", "fp32"), ("gpu", "fp16")]), strict=False))


@pytest.mark.quick(
    when=lambda name, kernels, precision, device_name: (
        on_first_runtime(device_name) and QUICK.get(name) == (kernels, precision)
    )
)
@pytest.mark.second_runtime(when=lambda precision, kernels: (precision, kernels) in (("fp32", "cpu"), ("fp16", "gpu")))
@pytest.mark.parametrize("kernels", ["cpu", "gpu"])
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("name", MODELS)
def test_runs_follow_litert(name: str, precision: str, kernels: str, device_name: str) -> None:
    data = MODELS[name]()
    runs = inputs_of(data, 5)
    expected = litert_runs(data, runs)
    options = Options(precision=precision, execution=Execution(kernels=kernels), device=device_name, fallback="forbid")
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
    builder = Builder()
    x = builder.input((1, 6))
    first_values(builder, {"sum": np.full((1, 6), 1000, np.float32)})
    total = binary(builder, "ADD", read(builder, "sum", (1, 6)), x, (1, 6))
    assign(builder, "sum", total)
    shown = builder.add("RELU", [total], (1, 6))
    model = tflgpu.compile(builder.finish([shown]), Options(device=device_name, precision="fp16"))
    for _ in range(8):
        (result,) = model.run(np.full((1, 6), 0.125, np.float32)).values()
    assert (result == 1001).all()


def test_a_closed_model_has_no_state_to_reset(device_name: str) -> None:
    model = tflgpu.compile(sum_of_inputs(), Options(device=device_name))
    model.close()
    with pytest.raises(ValueError, match="closed"):
        model.reset_state()


def test_state_on_the_cpu(device_name: str) -> None:
    """The part on the CPU takes the value of a variable from the device's part, and gives it, as any other tensor."""
    builder = Builder()
    x = builder.input(SHAPE)
    first_values(builder, {"s": normal(*SHAPE)})
    total = binary(builder, "ADD", read(builder, "s"), x)
    assign(builder, "s", builder.without_kernel(builder.without_kernel(total)))
    end = builder.add("TANH", [total], SHAPE)
    data = builder.finish([end])
    with pytest.warns(tflgpu.FallbackWarning):
        model = tflgpu.compile(data, Options(device=device_name, precision="fp32"))
    assert {o.code for o in model.report.operators if o.device == "cpu"} == {WITHOUT_KERNEL}
    runs = inputs_of(data, 3)
    expected = litert_runs(data, runs)
    for _ in range(2):
        check_runs(model, runs, expected, "fp32")
        model.reset_state()


def recurrent(code: str) -> bytes:
    """An operator without a kernel, whose state begins with a constant; between operators of the device."""
    builder = Builder()
    x, state = builder.tensor((2, 3)), builder.tensor((2, 8 if code == "SVDF" else 4), is_variable=True)
    builder.op("TANH", [builder.input((2, 3))], [x])
    constant = builder.constant(
        np.arange(-3, 5, dtype=np.int8)[: 8 if code == "SVDF" else 4][None].repeat(2, 0),
        quantization=Quantization([0.2], [1]),
    )
    builder.op("DEQUANTIZE", [constant], [state])
    if code == "SVDF":
        inputs = [x, builder.weights(4, 3), builder.weights(4, 2), -1, state]
    else:
        inputs = [x, builder.weights(4, 3), builder.weights(4, 4, scale=0.1), builder.weights(4), state]
    y = builder.add(code, inputs, (2, 4), **({"rank": 1} if code == "SVDF" else {}))
    return builder.finish([builder.add("TANH", [y])])


@pytest.mark.parametrize(
    ("code", "model"),
    [
        ("UNIDIRECTIONAL_SEQUENCE_LSTM", sequence(Lstm(9, 9))),
        ("UNIDIRECTIONAL_SEQUENCE_LSTM", from_constants()),
        ("SVDF", recurrent("SVDF")),
        ("RNN", recurrent("RNN")),
    ],
)
def test_state_of_recurrent_operators_on_the_cpu(code: str, model: bytes, device_name: str) -> None:
    options = Options(device=device_name, precision="fp32", cpu_part=CpuPart(operators=[code]))
    with pytest.warns(tflgpu.FallbackWarning):
        compiled = tflgpu.compile(model, options)
    runs = inputs_of(model, 3)
    expected = litert_runs(model, runs)
    for _ in range(2):
        check_runs(compiled, runs, expected, "fp32")
        compiled.reset_state()


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


@pytest.mark.quick(when=on_first_runtime)
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
    options = Options(precision=precision, device=device_name, fallback="forbid", interface=Interface(outputs=names))
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


def test_a_variable_tensor_can_be_an_output(device_name: str) -> None:
    """One that an operator changes, and one that no operator touches."""
    builder = Builder()
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


def test_a_quantized_basic_lstm_is_within_one_quantum(device_name: str) -> None:
    """The ranges that TFLite's 8-bit kernel prescribes: activations of -1 to 1, a state of 16 bits from -16 to 16."""
    builder, rng, batch, depth, cells = Builder(), np.random.default_rng(0), 2, 5, 6
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
