"""WHILE loops give LiteRT's answers, on the device where constants and shapes decide how often they go through."""

from __future__ import annotations

import numpy as np
import pytest

import tflgpu
from tests.frontend.control_flow.loop_models import (
    UNITS,
    Cell,
    crnn,
    gru_cell,
    lstm_cell,
    sequence_model,
    simple_cell,
    unrolled_model,
)
from tests.frontend.dynamic_models import Array
from tests.quick import on_first_runtime
from tests.support.litert import Interpreter, kept_interpreter, run_again
from tests.support.models import WITHOUT_KERNEL, Builder
from tflgpu.compiler import inspect_model
from tflgpu.frontend.control_flow.loop import MAX_OPERATORS
from tflgpu.options import Options, Shapes
from tflgpu.target import Target

pytestmark = pytest.mark.filterwarnings("ignore::tflgpu.FallbackWarning")


@pytest.mark.parametrize("given_steps", [False, True])
def test_a_network_of_convolutions_and_loops(given_steps: bool, device_name: str) -> None:
    """The file declares one row where the loops give one for each time. Constants limit the loops, or an input does."""
    data, rng = crnn(given_steps=given_steps), np.random.default_rng(0)
    model = tflgpu.compile(data, Options(precision="fp32", device=device_name, fallback="forbid"))
    judge = kept_interpreter(data)
    for run in range(10):
        inputs: list[Array] = [rng.standard_normal((1, 4, 16, 1)).astype(np.float32)]
        if given_steps:
            inputs.append(np.array(run % 5, np.int32))
        (got,) = model.run(inputs).values()
        np.testing.assert_allclose(got, run_again(judge, inputs)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.quick(when=lambda backwards, device_name: backwards and on_first_runtime(device_name))
@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("cell", [lstm_cell, gru_cell])
def test_recurrent_layers_for_any_length(cell: Cell, backwards: bool, device_name: str) -> None:
    """The length of the input decides how often the loop goes through, so that all of it runs on the device."""
    data, rng = sequence_model(cell, backwards=backwards), np.random.default_rng(0)
    model = tflgpu.compile(data, Options(precision="fp32", device=device_name, fallback="forbid"))
    for length in (1, 3, 7, 3):
        x = rng.standard_normal((1, length, UNITS)).astype(np.float32)
        judge = Interpreter(model_content=data)
        judge.resize_tensor_input(judge.get_input_details()[0]["index"], x.shape)
        judge.allocate_tensors()
        for got, wanted in zip(model.run(x).values(), run_again(judge, [x]), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("cell", [simple_cell, lstm_cell, gru_cell])
def test_a_loop_takes_as_many_kernels_as_its_cells_without_one(cell: Cell) -> None:
    """But for the kernels that join long lists, because a concatenation has not so many inputs at once."""
    for length in (7, 40):
        target, shapes = Target(family="gpu", compute_units=8, storage="half"), {"x": (1, length, UNITS)}
        loop = inspect_model(sequence_model(cell), Options(shapes=Shapes(inputs=shapes)), target).kernels
        unrolled = inspect_model(unrolled_model(cell, length), Options(), target).kernels
        assert loop is not None and unrolled is not None and loop <= 1.05 * unrolled


REFUSED = f"in its body, operator 2 {WITHOUT_KERNEL}: {WITHOUT_KERNEL} has no kernel for the device"


def counting_loop(limit: int, *operators: str) -> bytes:
    """x after ``limit`` times each of the operators."""
    builder, condition, body = Builder(), Builder(), Builder()
    x = builder.input((1, 4), name="x")
    i, _ = condition.input((), "int32"), condition.input((1, 4))
    again = builder.subgraph(condition, [condition.add("LESS", [i, condition.ints(limit)], (), dtype="bool")])
    i, y = body.input((), "int32"), body.input((1, 4))
    for code in operators:
        y = body.without_kernel(y) if code == WITHOUT_KERNEL else body.add(code, [y], (1, 4))
    step = builder.subgraph(body, [body.add("ADD", [i, body.ints(1)], (), "int32"), y])
    last = [builder.tensor((), "int32"), builder.tensor((1, 4))]
    builder.op("WHILE", [builder.ints(0), x], last, {"cond_subgraph_index": again, "body_subgraph_index": step})
    return builder.finish(last)


@pytest.mark.parametrize(
    ("limit", "operators", "reason"),
    [
        (MAX_OPERATORS, ("SIN",), ""),
        (3, ("NEG", "ROUND", WITHOUT_KERNEL), REFUSED),
        (3, ("SIN", "NEG"), ""),
        (0, ("SIN", "NEG"), ""),
    ],
)
def test_a_loop_on_either_side_gives_the_same(
    limit: int, operators: tuple[str, ...], reason: str, device_name: str
) -> None:
    data, x = counting_loop(limit, *operators), np.linspace(-1, 2, 4, dtype=np.float32)[None]
    model = tflgpu.compile(data, Options(precision="fp32", device=device_name))
    assert [reason] == [o.reasons[0] if o.reasons else "" for o in model.report.operators]
    for got, wanted in zip(model.run(x).values(), run_again(kept_interpreter(data), [x]), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def test_a_loop_without_its_subgraph_is_an_error() -> None:
    builder = Builder()
    last = builder.add("WHILE", [builder.input((1, 4))], (1, 4), cond_subgraph_index=1, body_subgraph_index=2)
    with pytest.raises(tflgpu.ModelError, match="operator 0 WHILE calls subgraph 1; the model has 1"):
        tflgpu.inspect(builder.finish([last]))
