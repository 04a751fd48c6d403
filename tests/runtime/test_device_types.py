"""Inputs and outputs of all types that live on the device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyopencl.array as cl_array
import pytest
from numpy.typing import NDArray

import tflgpu
from tests.support.arrays import assert_equal
from tests.support.models import Builder

Array = NDArray[Any]


def test_integers_of_64_bits_live_on_the_device(device_name: str) -> None:
    builder = Builder()
    x = builder.input((1, 4), "int64", name="x")
    y = builder.add("NEG", [x], (1, 4), "int64")
    model = tflgpu.compile(builder.finish([y]), tflgpu.Options(device=device_name))
    given = np.array([[2**31 + 1, -(2**40), 2**63 - 1, 7]])
    (got,) = model.run(cl_array.to_device(model.queue, given)).values()
    np.testing.assert_array_equal(got, -given)


def negations(dtypes: tuple[str, ...], sizes: tuple[int, ...]) -> bytes:
    """-x of rows of several types, which lie in one buffer on the device."""
    builder = Builder()
    inputs = [builder.input((n,), t, name=f"x{i}") for i, (t, n) in enumerate(zip(dtypes, sizes, strict=True))]
    outputs = [builder.tensor((n,), t, name=f"y{i}") for i, (t, n) in enumerate(zip(dtypes, sizes, strict=True))]
    for x, y in zip(inputs, outputs, strict=True):
        builder.op("NEG", [x], [y])
    return builder.finish(outputs)


@pytest.mark.parametrize("sizes", [(64, 64, 64), (0, 64, 64), (64, 0, 5)])
@pytest.mark.parametrize(
    ("kernels", "executor"),
    [("cpu", "launch"), ("gpu", "launch"), ("gpu", "persistent")],
    ids=["cpu", "gpu", "persistent"],
)
def test_types_of_several_sizes_in_one_buffer(
    kernels: str, executor: str, sizes: tuple[int, ...], device_name: str
) -> None:
    """4 bytes from byte 256 on, and 8 from byte 512 on, both begin at element 64."""
    dtypes = "float32", "float32", "int64"
    options = tflgpu.Options(
        device=device_name, precision="fp32", execution=tflgpu.Execution(kernels=kernels, executor=executor)
    )
    model = tflgpu.compile(negations(dtypes, sizes), options)
    given = {f"x{i}": np.arange(100 * i, 100 * i + sizes[i], dtype=t) for i, t in enumerate(dtypes)}
    expected = {f"y{i}": -x for i, x in enumerate(given.values())}
    assert_equal(model.run(given), expected)
    for moved in range(3):
        if not sizes[moved]:
            continue
        inputs = given | {f"x{moved}": cl_array.to_device(model.queue, given[f"x{moved}"])}
        target = cl_array.zeros(model.queue, sizes[moved], dtypes[moved])
        results = model.run(inputs, {f"y{moved}": target})
        assert_equal(results | {f"y{moved}": target.get()}, expected)
