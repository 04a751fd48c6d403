"""The analysis of half precision keeps in float what rounding would spoil, and no more than that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import tflgpu
from tests.graph.model import Model, functions
from tests.measure.half_attacks import ATTACKS, rms_norm, square
from tests.support.models import Builder
from tflgpu.graph.ir import Graph
from tflgpu.options import options_of
from tflgpu.passes import optimize

Array = NDArray[Any]

# Of an output's range. The inputs are the model's, so that nothing but what is stored in between is rounded.
LIMIT = 2e-3


# Why attacks have tensors in float.
REASONS = {
    "places of pixels": "index",
    "small probabilities": "cancellation",
    "moments": "overflow",
    "GroupNorm of images, scale 1": "mean",
}


def answers(model: bytes, inputs: list[Array], precision: str) -> tuple[list[Array], set[str]]:
    """Outputs, and the reasons for which tensors stay in float."""
    options = options_of({"device": "Intel", "precision": precision, "half_check": "off"})
    with tflgpu.compile(model, options) as compiled:
        found = compiled.run(dict(zip((i.name for i in compiled.inputs), inputs, strict=True)))
        floats = compiled.report.floats
        return list(found.values()), {t.reason for t in floats.tensors} if floats else set()


def check(model: bytes, *inputs: Array) -> set[str]:
    halves, reasons = answers(model, [*inputs], "fp16")
    for half, right in zip(halves, answers(model, [*inputs], "fp32")[0], strict=True):
        size = max(float(right.max()), 0.0) - min(float(right.min()), 0.0)
        assert np.abs(half.astype(np.float64) - right).max() <= LIMIT * size
    return reasons


@pytest.mark.parametrize("name", ATTACKS)
def test_half_is_right(name: str) -> None:
    reasons = check(ATTACKS[name].model(), ATTACKS[name].inputs())
    assert reasons >= {REASONS[name]} if name in REASONS else True


@pytest.mark.parametrize(
    ("name", "shapes"), [("warp_fp16", [(1, 4, 40, 64), (1, 40, 64, 2)]), ("H2_rms_pow", [(1, 16, 64)])]
)
def test_half_is_right_in_files(name: str, shapes: list[tuple[int, ...]], shared: Path) -> None:
    random = np.random.default_rng(0)
    inputs = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
    check((shared / "faults" / "second" / f"{name}.tflite").read_bytes(), *inputs)


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
