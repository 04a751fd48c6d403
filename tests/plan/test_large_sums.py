"""Sums that half cannot hold stay in float in fp16, and so does what is as large; what is in range stays in half."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tflgpu
from tests.graph.model import Model, functions
from tests.ops.case import Net, Tensor
from tflgpu.passes import optimize
from tflgpu.runtime.opencl.devices import choose

SHAPE = (1, 24, 24, 8)  # 576 pixels
WIDE = (1, 1, 1, 8)


def summed(m: Model, x: int) -> int:
    return m.add("SUM", [x, m.ints([1, 2])], WIDE, keep_dims=True)


def as_mean(m: Model, x: int) -> int:
    return m.add("MUL", [summed(m, x), m.constant(np.full(1, 1 / 576, np.float32))])


def of_small_terms(m: Model, x: int) -> int:
    return summed(m, m.add("RELU6", [x]))


def of_small_squares(m: Model, x: int) -> int:
    return summed(m, m.add("SQUARE", [m.add("RELU6", [x])]))


def of_masked_terms(m: Model, x: int) -> int:
    """A constant out of half's range is no sum."""
    return m.add("ADD", [x, m.constant(np.full(1, -1e9, np.float32))])


def divided_by(m: Model, x: int) -> int:
    """A softmax of exponentials, in the operators of another axis."""
    return m.add("DIV", [x, summed(m, m.add("EXP", [x]))], m.shape(x))


def bounded(m: Model, x: int) -> int:
    return m.add("TANH", [summed(m, x)])


def mean(m: Model, x: int) -> int:
    return m.add("MEAN", [x, m.ints([1, 2])], WIDE, keep_dims=True)


def moved(m: Model, x: int) -> int:
    y = summed(m, x)
    return m.add("CONCATENATION", [y, m.add("NEG", [y])], (1, 1, 1, 16), axis=3)


def gated(m: Model, x: int) -> int:
    return m.add("MUL", [x, summed(m, x)], m.shape(x))


def running(m: Model, x: int) -> int:
    return m.add("CUMSUM", [x, m.ints([1])])


def multiplied(m: Model, x: int) -> int:
    return m.add("REDUCE_PROD", [m.add("RELU6", [x]), m.ints([1])], (1, 1, 24, 8), keep_dims=True)


def precise(make: Callable[[Model, int], int]) -> set[tuple[int, ...]]:
    """The shapes of what stays in float between two convolutions."""
    m = Model()
    graph = optimize(m.graph(m.conv(make(m, m.conv(m.input(SHAPE), out=8)))))
    return {t.shape for t in graph.tensors.values() if t.precise}


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (summed, {WIDE}),
        (moved, {WIDE, (1, 1, 1, 16)}),
        (gated, {WIDE, SHAPE}),
        (running, {SHAPE}),
        (multiplied, {(1, 1, 24, 8)}),
        (of_small_squares, set()),
        (of_small_terms, set()),
        (of_masked_terms, set()),
        (as_mean, set()),
        (bounded, set()),
        (mean, set()),
    ],
)
def test_what_may_exceed_half_is_marked(make: Callable[[Model, int], int], expected: set[tuple[int, ...]]) -> None:
    assert precise(make) == expected


HALF = 65504.0
# How far elements reach, and what makes them so: operators in a row.
REACHES: dict[str, tuple[tuple[str, ...], tuple[float, float]]] = {
    "any": ((), (-HALF, HALF)),
    "not negative": (("RELU",), (0, HALF)),
    "not positive": (("RELU", "NEG"), (-HALF, 0)),
    "to 6": (("RELU6",), (0, 6)),
    "from -6": (("RELU6", "NEG"), (-6, 0)),
    "to 1": (("RELU_N1_TO_1",), (-1, 1)),
}
# Reductions of 24 rows, and the same in numpy.
GROWTHS: dict[str, tuple[str, Callable[[np.ndarray], np.ndarray]]] = {
    "sum": ("SUM", lambda x: x.sum(0)),
    "product": ("REDUCE_PROD", lambda x: x.prod(0)),
    "running sum": ("CUMSUM", lambda x: x.cumsum(0)),
    "mean": ("MEAN", lambda x: x.mean(0)),
    "maximum": ("REDUCE_MAX", lambda x: x.max(0)),
}


@pytest.mark.parametrize("reach", REACHES)
@pytest.mark.parametrize("growth", GROWTHS)
def test_precise_is_what_elements_at_their_ends_take_beyond_half(reach: str, growth: str) -> None:
    """On either side of zero."""
    operators, ends = REACHES[reach]
    code, function = GROWTHS[growth]

    def make(m: Model, x: int) -> int:
        for operator in operators:
            x = m.add(operator, [x])
        axes = [x, m.ints([1])]
        return m.add(code, axes) if code == "CUMSUM" else m.add(code, axes, (1, 1, 24, 8), keep_dims=True)

    with np.errstate(over="ignore"):
        largest = max(np.abs(function(np.full(24, end))).max() for end in ends)
    assert bool(precise(make)) == (largest > HALF)


def test_what_is_divided_by_a_large_sum_stays_in_half() -> None:
    m = Model()
    graph = optimize(m.graph(m.conv(divided_by(m, m.conv(m.input(SHAPE), out=8)))))
    (quotient,) = (n.output for n in graph.nodes if "div" in functions(n))
    assert not graph[quotient].precise


def convolved(net: Net, x: Tensor) -> Tensor:
    weights = net.constant(net.normal((8, 1, 1, 8)) + np.float32(2))
    options = {"padding": "SAME", "stride_h": 1, "stride_w": 1}
    value = x.value @ weights.value[:, 0, 0].T
    return net.op("CONV_2D", [x, weights, net.constant(np.zeros(8, np.float32))], value, options, terms=8)


@pytest.mark.parametrize(
    ("kernels", "executor"), [("cpu", "claiming"), ("cpu", "launch"), ("gpu", "launch"), ("gpu", "persistent")]
)
def test_a_convolution_reads_sums_beyond_half(device_name: str, kernels: str, executor: str) -> None:
    net = Net(seed=0)
    x = net.input(net.rng.uniform(100, 300, SHAPE).astype(np.float32))
    total = net.op("SUM", [x, net.integers([1, 2])], x.value.sum((1, 2), keepdims=True), {"keep_dims": True})
    assert total.value.min() > 1e5
    net.output(convolved(net, net.op("ADD", [total, total], 2 * total.value, activation="RELU")))
    case, execution = net.case(), tflgpu.Execution(kernels=kernels, executor=executor)
    for precision in ("fp16", "fp16_fast") if choose(device_name).limits.half_arithmetic else ("fp16",):
        options = tflgpu.Options(device=device_name, precision=precision, cache="off", execution=execution)
        with tflgpu.compile(case.model, options) as compiled:
            (got,) = compiled.run(case.inputs).values()
        np.testing.assert_allclose(got, case.expected[0], rtol=2e-3)
