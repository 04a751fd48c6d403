"""Bounds that are computed at run time: what the file must declare, and what no kernel may be asked to do."""

from __future__ import annotations

import numpy as np
import pytest

from tflgpu.frontend.lower import lower
from tflgpu.model.reader import read_model
from tflgpu.model.writer import ModelBuilder

RUNTIME = None
Bound = list[int] | None


def obstacles(code: str, shape: tuple[int, ...], bounds: list[Bound], result: tuple[int, ...]) -> str:
    """Of operator ``code`` with an input of ``shape`` and integer inputs, of which some are inputs of the model."""
    builder = ModelBuilder()
    rank = (len(shape), 2) if code == "PAD" else (len(shape),)
    inputs = [builder.input(shape)]
    for bound in bounds:
        runtime = bound is RUNTIME
        inputs.append(builder.input(rank, "int32") if runtime else builder.constant(np.array(bound, np.int32)))
    output = builder.tensor(result)
    builder.op(code, inputs, [output])
    return " ".join(lower(read_model(builder.finish([output]))).obstacles)


@pytest.mark.parametrize(
    ("code", "shape", "bounds", "result"),
    [
        ("SLICE", (5, 6), [RUNTIME, RUNTIME], (5, 2)),
        ("SLICE", (5, 6), [RUNTIME, [2, 3]], ()),
        ("STRIDED_SLICE", (5,), [[3], RUNTIME, [-1]], (4,)),
        ("STRIDED_SLICE", (5,), [RUNTIME, [5], [2]], (3,)),
        ("PAD", (5,), [RUNTIME], (9,)),
        ("SUM", (5, 6), [RUNTIME], ()),
    ],
)
def test_a_declared_shape_is_enough(
    code: str, shape: tuple[int, ...], bounds: list[Bound], result: tuple[int, ...]
) -> None:
    assert obstacles(code, shape, bounds, result) == ""


@pytest.mark.parametrize(
    ("code", "shape", "bounds", "result", "reason"),
    [
        ("SLICE", (5, 6), [RUNTIME, RUNTIME], (), "the file has to declare it"),
        ("SLICE", (5, 6), [RUNTIME, RUNTIME], (5, 7), "size [5, 7] in an input of shape [5, 6]"),
        ("SLICE", (5, 6), [[3, 0], RUNTIME], (3, 6), "begins at [3, 0] with size [3, 6]"),
        ("STRIDED_SLICE", (5,), [RUNTIME, RUNTIME, [1]], (), "the file has to declare it"),
        ("STRIDED_SLICE", (5,), [RUNTIME, RUNTIME, RUNTIME], (3,), "its stride along axis 0"),
        ("STRIDED_SLICE", (5,), [RUNTIME, RUNTIME, [2]], (4,), "has no 4 elements 2 apart from any place on"),
        ("STRIDED_SLICE", (5,), [[3], RUNTIME, [1]], (3,), "has no 3 elements 1 apart from 3 on"),
        ("STRIDED_SLICE", (5,), [[3], RUNTIME, [-1]], (5,), "has no 5 elements -1 apart from 3 on"),
        ("PAD", (5,), [RUNTIME], (), "the file has to declare it"),
        ("PAD", (5,), [RUNTIME], (4,), "is not its input of shape [5] with paddings"),
    ],
)
def test_no_kernel_reads_beyond_its_input(
    code: str, shape: tuple[int, ...], bounds: list[Bound], result: tuple[int, ...], reason: str
) -> None:
    assert reason in obstacles(code, shape, bounds, result)


def test_axes_must_follow_from_the_shape() -> None:
    builder = ModelBuilder()
    inputs = [builder.input((5, 5)), builder.input((1,), "int32")]
    output = builder.tensor((5,))
    builder.op("SUM", inputs, [output])
    reasons = lower(read_model(builder.finish([output]))).obstacles
    assert "does not tell which they are" in " ".join(reasons)
