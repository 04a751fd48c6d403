"""Bounds that are computed at run time. Where they decide how much there is, the file's word is not enough."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.models import Builder
from tests.support.planning import obstacles_of
from tflgpu.frontend.lower import lower
from tflgpu.model.reader import read_model

RUNTIME = None
Bound = list[int] | None


def obstacles(
    code: str, shape: tuple[int, ...], bounds: list[Bound], result: tuple[int, ...], options: Any = None
) -> str:
    """The obstacles of operator ``code`` with an input of ``shape`` and integer inputs, some of them inputs of the
    model.
    """
    builder = Builder()
    rank = (len(shape), 2) if code == "PAD" else (len(shape),)
    inputs = [builder.input(shape)]
    for bound in bounds:
        runtime = bound is RUNTIME
        inputs.append(builder.input(rank, "int32") if runtime else builder.ints(bound))
    output = builder.add(code, inputs, result, **(options or {}))
    return obstacles_of(builder.finish([output]))


@pytest.mark.parametrize(
    ("code", "shape", "bounds", "result"),
    [
        ("SLICE", (5, 6), [RUNTIME, [2, 3]], ()),
        ("STRIDED_SLICE", (5,), [RUNTIME, RUNTIME, [1]], ()),
        ("RESHAPE", (5,), [RUNTIME], ()),
        ("SUM", (5, 6), [RUNTIME], ()),
    ],
)
def test_the_amount_may_follow_without_bounds(
    code: str, shape: tuple[int, ...], bounds: list[Bound], result: tuple[int, ...]
) -> None:
    options = {"shrink_axis_mask": 1} if code == "STRIDED_SLICE" else {}
    assert obstacles(code, shape, bounds, result, options) == ""


@pytest.mark.parametrize(
    ("code", "shape", "bounds", "result", "reason"),
    [
        ("SLICE", (5, 6), [RUNTIME, RUNTIME], (5, 2), "the shape of its result is computed at run time"),
        ("SLICE", (5, 6), [[3, 0], RUNTIME], (1, 6), "the shape of its result is computed at run time"),
        ("SLICE", (5, 6), [RUNTIME, [-1, 6]], (1, 6), "the shape of its result is computed at run time"),
        ("STRIDED_SLICE", (5,), [[3], RUNTIME, [-1]], (4,), "how much it takes of axis 0 is computed at run time"),
        ("STRIDED_SLICE", (5,), [RUNTIME, [5], [2]], (3,), "how much it takes of axis 0 is computed at run time"),
        ("STRIDED_SLICE", (5,), [RUNTIME, RUNTIME, RUNTIME], (3,), "its stride along axis 0"),
        ("RESHAPE", (5, 6), [RUNTIME], (6, 5), "its shape (input 1) is computed at run time"),
        ("PAD", (5,), [RUNTIME], (9,), "its paddings (input 1) is computed at run time"),
        ("SLICE", (5, 6), [RUNTIME, [5, 7]], (), "size [5, 7] in an input of shape [5, 6]"),
    ],
)
def test_a_declared_shape_is_not_believed(
    code: str, shape: tuple[int, ...], bounds: list[Bound], result: tuple[int, ...], reason: str
) -> None:
    assert reason in obstacles(code, shape, bounds, result)


def test_one_axis_of_several_is_unknown() -> None:
    """Also where the declared shape would tell which it is."""
    builder = Builder()
    inputs = [builder.input((5, 6)), builder.input((1,), "int32")]
    output = builder.add("SUM", inputs, (5,))
    reasons = lower(read_model(builder.finish([output]))).obstacles
    assert "its axes (input 1) are computed at run time" in " ".join(reasons)
