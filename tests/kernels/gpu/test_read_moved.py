"""Operands that kernels of elementwise functions read where they lie before a movement."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray

import tflgpu
from tests.support.models import Builder
from tests.support.planning import kinds, plan_of
from tests.support.targets import GPU

DEPTH = 16

# Tokens, heads, elements of a head, and how many elements of a row come before them.
SHAPES = ((1, 9, 64, 0), (7, 3, 32, 24), (5, 1, 24, 8), (6, 2, 20, 4))

WEIGHTS = np.random.default_rng(1).standard_normal((24 + 9 * 64, DEPTH)).astype(np.float32)


def rotary(tokens: int, heads: int, head: int, before: int) -> bytes:
    """A product [tokens, before + heads * head], and both halves of its heads' elements, turned by angles."""
    builder, width, half = Builder(), before + heads * head, head // 2
    x = builder.input((tokens, DEPTH), name="x")
    cosine, sine = builder.input((tokens, 1, half), name="cosine"), builder.input((tokens, 1, half), name="sine")
    bias = builder.constant(np.zeros(width, np.float32))
    row = builder.add("FULLY_CONNECTED", [x, builder.constant(WEIGHTS[:width]), bias], (tokens, width))
    ends = builder.ints([tokens, heads * head])
    parts = builder.add("SLICE", [row, builder.ints([0, before]), ends], (tokens, heads * head))
    parts = builder.add("RESHAPE", [parts, builder.ints([tokens, heads, head])], (tokens, heads, head))
    shape = (tokens, heads, half)
    first, second = (
        builder.add("SLICE", [parts, builder.ints([0, 0, begin]), builder.ints(shape)], shape) for begin in (0, half)
    )
    return builder.finish(
        [
            builder.add(code, [builder.add("MUL", [a, cosine], shape), builder.add("MUL", [b, sine], shape)], shape)
            for code, a, b in (("SUB", first, second), ("ADD", second, first))
        ]
    )


@pytest.mark.quick(when=lambda shape, executor: (shape, executor) == (SHAPES[1], "persistent"))
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("executor", ["launch", "persistent"])
def test_halves_of_heads_are_read_from_the_row(
    shape: tuple[int, int, int, int], executor: Literal["launch", "persistent"], device_name: str
) -> None:
    tokens, heads, head, before = shape
    random = np.random.default_rng(0)
    inputs: dict[str, NDArray[Any]] = {
        name: random.standard_normal(size).astype(np.float32)
        for name, size in (("x", (tokens, DEPTH)), *((a, (tokens, 1, head // 2)) for a in ("cosine", "sine")))
    }
    execution = tflgpu.Execution(kernels="gpu", executor=executor)
    options = tflgpu.Options(device=device_name, precision="fp32", execution=execution, cache="off")
    with tflgpu.compile(rotary(*shape), options) as model:
        found = model.run(inputs).values()
    row = inputs["x"].astype(np.float64) @ WEIGHTS[: before + heads * head].T
    first, second = np.split(row[:, before:].reshape(tokens, heads, head), 2, 2)
    cosine, sine = inputs["cosine"], inputs["sine"]
    expected = [first * cosine - second * sine, second * cosine + first * sine]
    for value, right in zip(found, expected, strict=True):
        np.testing.assert_allclose(value, right, atol=1e-4)


@pytest.mark.parametrize("shape", SHAPES[:2], ids=str)
def test_no_kernel_moves_what_elementwise_functions_read(shape: tuple[int, int, int, int]) -> None:
    assert kinds(plan_of(rotary(*shape), GPU)) == ["fully_connected", "map", "map"]
