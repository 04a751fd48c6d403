"""Sums of many floats: off by at most 1e-6 of the sum of magnitudes, in both families of kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray

import tflgpu
from tests.kernels.networks import options
from tests.ops.windows import Window
from tests.support.models import Builder

Family = Literal["cpu", "gpu"]
Array = NDArray[Any]
Case = tuple[bytes, list[Array], list[Array]]  # the model, inputs, and results in double
LARGEST_ERROR = 1e-6


def equal(rng: np.random.Generator, *shape: int) -> Array:
    """Whose sums round the same way again and again."""
    return np.full(shape, rng.uniform(0.5, 1), np.float32)


def one_sign(rng: np.random.Generator, *shape: int) -> Array:
    return rng.uniform(0, 1, shape).astype(np.float32)


def reductions(x: Array) -> Case:
    """Sums of the rows of a matrix of three rows, of its columns, and of windows of its pixels."""
    net, exact, found = Builder(), x.astype(np.float64), []
    n = x.shape[1]
    given = net.input(x.shape)
    pixels = net.add("RESHAPE", [given], (1, 3, n, 1), new_shape=[1, 3, n, 1])
    rows = np.array([1], np.int32)

    def add(code: str, value: Array, *, source: int = given, constant: Array | None = None, **more: object) -> None:
        result = net.add(code, [source, *([] if constant is None else [net.constant(constant)])], value.shape, **more)
        found.append((result, value))

    exponentials = np.exp(exact - exact.max(1, keepdims=True))
    add("SUM", exact.sum(1), constant=rows, keep_dims=False)
    add("MEAN", exact.mean((0, 1)), constant=np.array([0, 1], np.int32), keep_dims=False)
    add("SOFTMAX", exponentials / exponentials.sum(1, keepdims=True), beta=1.0)
    add("L2_NORMALIZATION", exact / np.sqrt((exact**2).sum(1, keepdims=True)))
    add("CUMSUM", exact.cumsum(1), constant=rows[0], exclusive=False, reverse=False)
    add("MEAN", exact.mean(1).reshape(1, 3, 1), source=pixels, constant=np.array([2], np.int32), keep_dims=False)
    mean = exact.mean().reshape(1, 1, 1, 1)
    add("AVERAGE_POOL_2D", mean, source=pixels, filter_height=3, filter_width=n, padding=1, stride_h=1, stride_w=1)
    return net.finish([result for result, _ in found]), [x], [value for _, value in found]


def products(x: Array) -> Case:
    """Products of the three rows of a matrix with as many columns, constant ones and computed ones, and of an image's
    pixels.
    """
    net, exact, n = Builder(), x.astype(np.float64), x.shape[1]
    given, other = net.input(x.shape), net.input((n, 3))
    connected, multiplied, image, pixels = (net.tensor(s) for s in ((3, 3), (3, 3), (1, 1, 3, n), (1, 1, 3, 3)))
    net.op("FULLY_CONNECTED", [given, net.constant(x), -1], [connected])
    net.op("BATCH_MATMUL", [given, other], [multiplied], {"adj_x": False, "adj_y": False})
    net.op("RESHAPE", [given], [image], {"new_shape": [1, 1, 3, n]})
    weights, bias = net.constant(x.reshape(3, 1, 1, n)), net.constant(np.zeros(3, np.float32))
    net.op("CONV_2D", [image, weights, bias], [pixels], options(Window((1, 1), padding="VALID")))
    value = exact @ exact.T
    model = net.finish([connected, multiplied, pixels])
    return model, [x, np.ascontiguousarray(x.T)], [value, value, value.reshape(1, 1, 3, 3)]


def check(case: Case, family: Family) -> None:
    """All numbers are positive, so that a result is the sum of its magnitudes."""
    model, inputs, expected = case
    executor: Literal["launch", "auto"] = "launch" if family == "gpu" else "auto"
    chosen = tflgpu.Options(
        execution=tflgpu.Execution(kernels=family, executor=executor), precision="fp32", cache="off", fallback="forbid"
    )
    with tflgpu.compile(model, chosen) as compiled:
        results = compiled.run(inputs).values()
    errors = [np.abs(got.reshape(e.shape) / e - 1).max() for got, e in zip(results, expected, strict=True)]
    assert max(errors) <= LARGEST_ERROR, errors


@pytest.mark.quick(when=lambda fill: fill is equal)
@pytest.mark.parametrize("family", ["cpu", "gpu"])
@pytest.mark.parametrize("fill", [equal, one_sign])
@pytest.mark.parametrize("build", [reductions, products])
def test_long_sums_keep_their_digits(
    build: Callable[[Array], Case], fill: Callable[..., Array], family: Family
) -> None:
    rng = np.random.default_rng([len(build.__name__), len(fill.__name__)])
    check(build(fill(rng, 3, int(rng.integers(20_000, 60_000)))), family)


@pytest.mark.parametrize("family", ["cpu", "gpu"])
@pytest.mark.parametrize("length", [1, 31, 65, 127, 2049, 3_000_000])
def test_sums_of_any_length_keep_their_digits(length: int, family: Family) -> None:
    """Whole blocks, parts of them, and fewer."""
    x = equal(np.random.default_rng(length), length)
    net = Builder()
    given = net.input(x.shape)
    result = net.add("SUM", [given, net.ints([0])], (), keep_dims=False)
    check((net.finish([result]), [x], [x.astype(np.float64).sum().reshape(())]), family)
