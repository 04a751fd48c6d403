"""TOPK_V2 of rows that are sorted by several kernels: right in every order, type and layout."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray

import tflgpu
from tests.ops import reference
from tests.quick import on_first_runtime
from tests.support.models import Builder
from tests.support.planning import kinds, plan_of
from tflgpu.target import Target

Family = Literal["cpu", "gpu"]


def model(shape: tuple[int, ...], k: int, dtype: str = "float32", *, doubled: bool = False) -> bytes:
    """doubled: the values, and the first of the row added to each; else the values and the indices."""
    builder = Builder()
    x, results = builder.input(shape, dtype), (*shape[:-1], k)
    values, indices = builder.tensor(results, dtype), builder.tensor(results, "int32")
    builder.op("TOPK_V2", [x, builder.ints(k)], [values, indices])
    if not doubled:
        return builder.finish([values, indices])
    return builder.finish([builder.add("ADD", [values, x], results, dtype, fused_activation_function="RELU")])


def run(data: bytes, x: NDArray[Any], device: str, family: Family) -> list[NDArray[Any]]:
    executor: Any = "launch" if family == "gpu" else "auto"
    options = tflgpu.Options(
        device=device, execution=tflgpu.Execution(kernels=family, executor=executor), precision="fp32", cache="off"
    )
    return list(tflgpu.compile(data, options).run(x).values())


def drawn(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> NDArray[Any]:
    """Numbers of which many are equal; of floats some are zeros of either sign, infinities and NaN."""
    if dtype != "float32":
        limits = np.iinfo(dtype)
        values = rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
        few = np.array([limits.min, limits.max, 1], dtype)
        return np.where(rng.random(shape) < 0.5, values, rng.choice(few, shape))
    values = rng.normal(size=shape).round(1).astype(np.float32)
    spikes = np.array([0.0, -0.0, np.inf, -np.inf, np.nan], np.float32)
    return np.where(rng.random(shape) < 0.3, rng.choice(spikes, shape), values).astype(np.float32)


CASES = (
    ((40_000,), 40_000, "float32"),
    ((9_000,), 700, "float32"),
    ((40_003,), 10, "float32"),
    ((3, 333), 333, "int32"),
    ((2, 5, 301), 37, "float32"),  # rows that do not lie side by side
    ((2, 2, 3, 129), 129, "int64"),
    ((1, 7, 1_000), 100, "int8"),
    ((5, 65), 65, "uint8"),
)


@pytest.mark.quick(when=lambda family, device_name: family == "cpu" and on_first_runtime(device_name))
@pytest.mark.second_runtime(when=lambda family: family == "cpu")
@pytest.mark.parametrize("family", ["cpu", "gpu"])
def test_long_rows_are_in_order(family: Family, device_name: str) -> None:
    rng = np.random.default_rng(1)
    for shape, k, dtype in CASES:
        x = drawn(shape, dtype, rng)
        for got, expected in zip(
            run(model(shape, k, dtype), x, device_name, family), reference.top_k(x, k), strict=True
        ):
            np.testing.assert_array_equal(got, expected, f"{shape} {k} {dtype}")
            if got.dtype == np.float32:
                np.testing.assert_array_equal(np.signbit(got), np.signbit(expected))


@pytest.mark.parametrize("order", [1, -1])
def test_rows_in_order_already_are_no_worse(order: int, device_name: str) -> None:
    """In an ascending row each element is greater than all that were selected before."""
    x = np.arange(50_000, dtype=np.float32)[::order].copy()
    values, indices = run(model(x.shape, 500), x, device_name, "cpu")
    np.testing.assert_array_equal(values, x[np.argsort(-x)[:500]])
    np.testing.assert_array_equal(indices, np.argsort(-x)[:500])


def test_what_follows_may_read_the_unsorted_row(device_name: str) -> None:
    x = np.random.default_rng(2).normal(size=(2, 100)).astype(np.float32)
    (got,) = run(model(x.shape, 100, doubled=True), x, device_name, "cpu")
    np.testing.assert_array_equal(got, np.maximum(reference.top_k(x, 100)[0] + x, 0))


@pytest.mark.parametrize(
    ("family", "size", "runs"),
    [
        ("cpu", 16_384, ["sorted_runs", *["merged_runs"] * 2]),  # a block for each of four cores
        ("gpu", 4_096, ["ranked_runs", *["merged_runs"] * 7]),
    ],
)
def test_values_and_indices_share_a_sort(family: Family, size: int, runs: list[str]) -> None:
    target = Target(family=family, compute_units=4, storage="float")
    plan = plan_of(model((size,), size), target)
    assert kinds(plan) == [*runs, "gather", "map"]


def test_few_of_short_rows_take_one_kernel_each() -> None:
    target = Target(family="cpu", compute_units=4, storage="float")
    plan = plan_of(model((8_400, 80), 10), target)
    assert kinds(plan) == ["top_k", "top_k"]
