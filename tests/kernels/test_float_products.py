"""Products of floats on emulated matrix units, beside double precision."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import tflgpu
from tests.conftest import missing
from tests.support import emulated_matrix_units as emulated
from tests.support.models import Builder
from tests.support.planning import graph_of
from tflgpu.kernels.mma.m16n8k16 import Operands
from tflgpu.plan import Plan, make_plan

Floats = NDArray[np.float32]
ERROR = 1e-6  # of the largest result


@pytest.fixture(autouse=True)
def emulation() -> None:
    if all(d.platform != emulated.DEVICE for d in tflgpu.devices()):
        missing(f"the OpenCL runtime {emulated.DEVICE!r}")


def pointwise(pixels: int, weights: Floats, precise: bool) -> Plan:
    """ABS, whose result is precise or not, and a precise pointwise convolution of that with weights [out, in]."""
    builder, (channels, depth) = Builder(), weights.shape
    shape = (1, 1, pixels, depth)
    x = builder.input(shape)
    constants = builder.constant(weights[:, None, None]), builder.constant(np.zeros(channels, np.float32))
    image = builder.add("ABS", [x], shape, name="image")
    y = builder.add("CONV_2D", [image, *constants], (*shape[:3], channels), padding="SAME", stride_h=1, stride_w=1)
    graph = graph_of(builder.finish([y]))
    kept = [t for t in graph.tensors.values() if t.id in graph.outputs or (precise and t.name == "image")]
    return make_plan(graph.with_nodes(graph.nodes, [replace(t, precise=True) for t in kept]), emulated.TARGET)


def run(plan: Plan, x: Floats) -> NDArray[Any]:
    (got,) = emulated.run(plan, [x])
    return got.reshape(x.shape[2], -1)


@pytest.mark.quick(when=lambda operands: operands == Operands("float", "float"))
@pytest.mark.parametrize(
    ("operands", "pixels", "depth", "channels"),
    [
        (Operands("float", "float"), 21, 70, 24),
        (Operands("float", "half"), 40, 33, 9),
        (Operands("half", "float"), 5, 130, 40),
        (Operands("half", "half"), 19, 48, 17),
    ],
    ids=str,
)
def test_products_are_as_exact_as_floats(operands: Operands, pixels: int, depth: int, channels: int) -> None:
    random = np.random.default_rng(depth)

    def drawn(shape: tuple[int, ...], element: str) -> Floats:
        exact = np.float16 if element == "half" else np.float32
        return random.normal(size=shape).astype(exact).astype(np.float32)

    weights, x = drawn((channels, depth), operands.weights), abs(drawn((1, 1, pixels, depth), operands.image))
    plan = pointwise(pixels, weights, operands.image == "float")
    assert vars(plan.kernels[-1].kernel.parameters)["operands"] == operands
    expected = x[0, 0].astype(np.float64) @ weights.astype(np.float64).T
    np.testing.assert_allclose(run(plan, x), expected, rtol=0, atol=ERROR * np.abs(expected).max())


@pytest.mark.parametrize("weights", ["half", "float"])
def test_products_have_the_range_of_floats(weights: str) -> None:
    """An infinity stays one, of the right sign, and a NaN a NaN."""
    factors = np.random.default_rng(0).normal(size=(8, 16)).astype(np.float16 if weights == "half" else np.float32)
    x = np.ones((1, 1, 6, 16), np.float32)
    x[0, 0, :, 3] = 1e-30, 7e4, 1e37, 2e38, np.inf, np.nan
    with np.errstate(invalid="ignore"):
        expected = x[0, 0].astype(np.float64) @ factors.astype(np.float64).T
    got = run(pointwise(6, factors.astype(np.float32), precise=True), x)
    for row, right in zip(got[:3], expected[:3], strict=True):
        np.testing.assert_allclose(row, right, rtol=0, atol=ERROR * np.abs(right).max())
    np.testing.assert_allclose(got[3:], np.float32(expected[3:]), rtol=2**-10)
