"""The analysis of half precision keeps in float what rounding would spoil, and no more than that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter
from numpy.typing import NDArray

import tflgpu
from tests.graph.model import Model, functions
from tests.measure.half_attacks import ATTACKS, NORMS, Attack, joined, rms_norm, square
from tests.support.models import Builder
from tflgpu.graph.ir import Graph
from tflgpu.options import options_of
from tflgpu.passes import optimize
from tflgpu.report.half_precision import LARGEST_ERROR

Array = NDArray[Any]

# Greatest error, as a part of an output's range. The inputs are the model's, so that nothing but what is stored in
# between is rounded.
LIMIT = 2e-3

# Models that the attacks are divided among.
PARTS = 3


def litert(model: bytes, inputs: Mapping[str, Array]) -> list[Array]:
    interpreter = Interpreter(model_content=model, num_threads=1)
    interpreter.allocate_tensors()
    for detail, value in zip(interpreter.get_input_details(), inputs.values(), strict=True):
        interpreter.set_tensor(detail["index"], value)
    interpreter.invoke()
    return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]


def errors(model: bytes, inputs: Mapping[str, Array]) -> tuple[list[float], set[str]]:
    """Errors of outputs in half, as parts of their ranges, and the reasons for which tensors stay in float."""
    options = options_of({"device": "Intel", "precision": "fp16", "half_check": "off"})
    with tflgpu.compile(model, options) as compiled:
        halves = compiled.run(dict(inputs)).values()
        floats = compiled.report.floats
    assert floats is not None
    rights = [right.astype(np.float64) for right in litert(model, inputs)]
    sizes = [max(float(right.max()), 0.0) - min(float(right.min()), 0.0) for right in rights]
    found = [float(np.abs(h - r).max()) / size for h, r, size in zip(halves, rights, sizes, strict=True)]
    return found, {tensor.reason for tensor in floats.tensors}


def check(attacks: Mapping[str, Attack], random: np.random.Generator, limit: float) -> None:
    inputs = {name: attack.inputs(random) for name, attack in attacks.items()}
    found, reasons = errors(joined(attacks), inputs)
    off = {name: error for name, error in zip(attacks, found, strict=False) if not error <= limit}
    assert not off
    assert reasons >= {attack.kept for attack in attacks.values()} - {""}


@pytest.mark.parametrize("part", range(PARTS))
def test_half_is_right(part: int) -> None:
    """Several attacks are in one model."""
    check(dict(list(ATTACKS.items())[part::PARTS]), np.random.default_rng(part), LARGEST_ERROR)


def test_norms_of_any_writing_are_right() -> None:
    """For activations of any size."""
    random = np.random.default_rng(0)
    scales = 3000 ** random.uniform(0, 1, len(NORMS))
    attacks = {name: replace(a, scale=float(s)) for (name, a), s in zip(NORMS.items(), scales, strict=True)}
    check(attacks, random, LIMIT)


@pytest.mark.parametrize(
    ("name", "shapes"), [("warp_fp16", [(1, 4, 40, 64), (1, 40, 64, 2)]), ("H2_rms_pow", [(1, 16, 64)])]
)
def test_half_is_right_in_files(name: str, shapes: list[tuple[int, ...]], shared: Path) -> None:
    model = (shared / "faults" / "second" / f"{name}.tflite").read_bytes()
    random = np.random.default_rng(0)
    names = [info.name for info in tflgpu.inspect(model).model.inputs]
    inputs = {n: random.standard_normal(s).astype(np.float32) for n, s in zip(names, shapes, strict=True)}
    assert max(errors(model, inputs)[0]) <= LIMIT


def activation(code: str) -> Graph:
    """Between two convolutions."""
    m = Model()
    x = m.conv(m.input((1, 8, 8, 16)), out=64)
    if code == "SOFTPLUS":
        y = m.add("LOG", [m.add("ADD", [m.add("EXP", [x]), m.constant(np.ones((), np.float32))])])
    elif code == "SNAKE":
        y = m.add("ADD", [x, m.add("SQUARE", [m.add("SIN", [x])])])
    elif code == "SWISH":
        y = m.add("MUL", [x, m.add("LOGISTIC", [x])])
    else:
        y = m.add(code, [x])
    return optimize(m.graph(m.conv(y)))


@pytest.mark.parametrize("code", ["SOFTPLUS", "SNAKE", "SWISH", "LOGISTIC", "TANH", "GELU", "HARD_SWISH", "ELU"])
def test_activations_stay_in_half(code: str) -> None:
    assert not any(t.precise or t.wide for t in activation(code).tensors.values())


def test_means_that_a_product_reads_stay_in_half() -> None:
    m = Model()
    image = m.conv(m.input((1, 8, 8, 16)), out=64)
    pooled = m.add("MEAN", [image, m.ints([1, 2])], (1, 1, 1, 64), keep_dims=True)
    gate = m.add("LOGISTIC", [m.convolution(pooled, 64, 1)])
    graph = optimize(m.graph(m.conv(m.add("MUL", [image, gate]))))
    assert not any(t.precise or t.wide for t in graph.tensors.values())


def test_little_weights_stay_in_half_where_their_products_are_added_to_an_activation() -> None:
    """The scales of a network's layers, such as 1e-6, are multiplied into their weights."""
    m = Model()
    image = m.conv(m.input((1, 8, 8, 64)), out=64)
    scaled = m.add("MUL", [m.convolution(image, 64, 1), m.constant(np.full(64, 1e-6, np.float32))])
    graph = optimize(m.graph(m.conv(m.add("ADD", [image, scaled]))))
    assert not any(t.precise or t.wide for t in graph.tensors.values())


def test_squares_are_summed_where_they_are_computed() -> None:
    m = Model()
    image = m.conv(m.input((1, 8, 8, 16)), out=64)
    mean = m.add("MEAN", [m.add("SQUARE", [image]), m.ints([1, 2])], (1, 1, 1, 64), keep_dims=True)
    graph = optimize(m.graph(m.add("SQRT", [mean])))
    assert [functions(n) for n in graph.nodes if n.kind == "reduce"] == [["mul", "sqrt"]]


def test_a_multiple_of_a_mean_square_is_a_norm() -> None:
    m = Model()

    def half_of_mean(b: Builder, x: int) -> int:
        sums = b.add("SUM", [x, b.ints([-1])], (1, 4, 1), keep_dims=True)
        return b.add("MUL", [sums, b.constant(np.array(1 / 32, np.float32))])

    norm = rms_norm(square, half_of_mean, lambda b, x: b.add("RSQRT", [x]))
    graph = optimize(m.graph(norm(m, m.input((1, 4, 16)))))
    assert [n.kind for n in graph.nodes] == ["layer_norm"]


def test_a_single_number_has_no_rows() -> None:
    m = Model()
    x = m.input(())
    graph = optimize(m.graph(m.add("RESHAPE", [m.add("ABS", [x])], (1,), new_shape=[1])))
    assert [n.kind for n in graph.nodes] == ["map", "reshape"]
