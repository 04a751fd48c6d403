"""A convolution whose residual has fewer channels than its result: zeros are added behind the last one."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest

import tflgpu
from tests.graph.model import Model, apply, functions, kinds
from tests.quick import on_first_runtime
from tests.support import emulated_matrix_units as emulated
from tests.support import litert
from tests.support.planning import plan_of

# Shapes of the residual, channels of the result, and how wide the convolution's window is.
CASES = [
    ((2, 6, 5, 7), 13, 1),
    ((1, 8, 8, 24), 28, 3),
    ((3, 1, 1, 20), 40, 1),
    ((1, 7, 9, 41), 44, 1),
    ((2, 4, 4, 2), 64, 3),
]


def block(m: Model, shape: tuple[int, ...], channels: int, kernel: int, code: str = "ADD", first: int = 0) -> list[int]:
    """The result of a residual block, and what it adds."""
    margin = kernel // 2
    x = m.add("RELU", [m.input(shape)])
    inside = m.pad(x, [(0, 0), (margin, margin), (margin, margin), (0, 0)]) if margin else x
    terms = [m.conv(inside, kernel, channels), m.pad(x, [(0, 0)] * 3 + [(0, channels - shape[3])])]
    return [m.add("TANH", [m.add(code, [terms[first], terms[1 - first]])]), x]


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("code", ["ADD", "SUB"])
def test_no_padded_copy_is_made(code: str, first: int) -> None:
    m = Model()
    graph = m.graph(*block(m, *CASES[0], code, first))
    (node,) = [n for n in apply("fuse fuse_padding", graph).nodes if n.kind != "map"]
    assert (node.kind, functions(node)) == ("convolution", [code.lower(), "tanh"])


@pytest.mark.parametrize(
    "margins",
    [[(0, 0), (0, 0), (0, 0), (1, 5)], [(0, 0), (0, 0), (0, 1), (0, 6)], [(1, 0), (0, 0), (0, 0), (0, 6)]],
    ids=["in front", "a column", "an image"],
)
def test_other_padding_stays_a_copy(margins: list[tuple[int, int]]) -> None:
    m = Model()
    x = m.add("RELU", [m.input((1, 6, 5, 7))])
    padded = m.pad(x, margins)
    b, h, w, _ = m.shape(padded)
    graph = m.graph(m.add("ADD", [m.conv(m.input((b, h, w, 3)), out=13), padded]))
    assert kinds(apply("fuse fuse_padding", graph))["rearrange"] == 1


def test_a_single_channel_is_not_taken_for_all() -> None:
    m = Model()
    graph = m.graph(*block(m, (1, 4, 4, 1), 5, 1))
    assert kinds(apply("fuse fuse_padding", graph))["rearrange"] == 1


@pytest.mark.quick(
    when=lambda precision, kernels, device_name: (
        (precision, kernels) == ("fp16", "gpu") and on_first_runtime(device_name)
    )
)
@pytest.mark.parametrize("kernels", ["auto", "gpu"])
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_results_are_right(
    case: tuple[tuple[int, ...], int, int],
    precision: Literal["fp32", "fp16"],
    kernels: Literal["auto", "gpu"],
    device_name: str,
) -> None:
    m = Model()
    model = m.finish(block(m, *case))
    x = np.random.default_rng(5).standard_normal(case[0]).astype(np.float32)
    expected = list(litert.run(model, x).values())
    compiled = tflgpu.compile(
        model, tflgpu.Options(device=device_name, precision=precision, execution=tflgpu.Execution(kernels=kernels))
    )
    for got, wanted in zip(compiled.run(x).values(), expected, strict=True):
        np.testing.assert_allclose(
            got, wanted, rtol=0, atol=(1e-5 if precision == "fp32" else 1e-2) * np.abs(wanted).max()
        )


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("storage", ["half", "float"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_matrix_units_read_it_as_well(
    case: tuple[tuple[int, ...], int, int], storage: Literal["half", "float"]
) -> None:
    m = Model()
    model = m.finish(block(m, *case))
    x = np.random.default_rng(5).standard_normal(case[0]).astype(np.float32)
    plan = plan_of(model, replace(emulated.TARGET, storage=storage))
    for got, wanted in zip(emulated.run(plan, [x]), litert.run(model, x).values(), strict=True):
        atol = (1e-5 if storage == "float" else 1e-2) * np.abs(wanted).max()
        np.testing.assert_allclose(got, wanted, rtol=0, atol=atol)
