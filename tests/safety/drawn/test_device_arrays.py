"""Faults that drawn runs on callers' device arrays found: tflgpu took too much memory, or the same for two tensors."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

import tflgpu
from tests.safety.drawn.device_arrays import run_on_device_arrays
from tests.safety.drawn.poison import NANS
from tests.support.models import Builder
from tflgpu.options import KernelFamily


@pytest.fixture(params=["cpu", "gpu"])
def options(request: pytest.FixtureRequest, device_name: str) -> tflgpu.Options:
    kernels: KernelFamily = request.param
    return tflgpu.Options(
        device=device_name, precision="fp32", execution=tflgpu.Execution(kernels=kernels), cache="off"
    )


def test_a_view_of_an_input_ends_with_zeros(options: tflgpu.Options) -> None:
    """The input is in the host's order, and its view of 18 channels is five vec4s, of which the last holds two more."""
    builder = Builder()
    x = builder.input((6, 3), name="x")
    flat = builder.add("RESHAPE", [x, builder.ints([18])], (18,), new_shape=[18])
    padded = builder.add("PAD", [flat, builder.ints([[0, 1]])], (19,), name="y")
    value = np.arange(1, 19, dtype=np.float32).reshape(6, 3)
    with tflgpu.compile(builder.finish([padded]), options) as model:
        (got,) = run_on_device_arrays(model, [value], NANS, Random(0))
    assert got.tolist() == [*range(1, 19), 0]


@pytest.mark.parametrize("size", [1, 3, 4])
def test_two_views_of_a_tensor_are_both_written(options: tflgpu.Options, size: int) -> None:
    builder = Builder()
    x = builder.input((size,), name="x")
    views = [builder.tensor((1,) * n + (size,), name=f"y{n}") for n in (1, 2)]
    y = builder.add("NEG", [x], (size,))
    for n, view in enumerate(views, 1):
        shape = [1] * n + [size]
        builder.op("RESHAPE", [y, builder.ints(shape)], [view], {"new_shape": shape})
    with tflgpu.compile(builder.finish(views), options) as model:
        got = run_on_device_arrays(model, [np.arange(1, size + 1, dtype=np.float32)], NANS, Random(0))
    assert [each.ravel().tolist() for each in got] == [[-n for n in range(1, size + 1)]] * 2
