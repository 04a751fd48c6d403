"""How the work-items of a GPU's work-group share the work."""

from __future__ import annotations

import numpy as np
import pytest

import tflgpu
from tflgpu.compiler import plan_model
from tflgpu.writer import ModelBuilder

from .test_persistent import H200


def reduction(code: str, shape: tuple[int, ...]) -> bytes:
    builder = ModelBuilder()
    x = builder.input(shape)
    if code == "SOFTMAX":
        y = builder.tensor(shape)
        builder.op(code, [x], [y], {"beta": 1.0})
    else:
        y = builder.tensor((shape[0], shape[-1]))
        builder.op(code, [x, builder.constant(np.array([1, 2], np.int32))], [y], {"keep_dims": False})
    return builder.finish([y])


@pytest.mark.parametrize(
    ("code", "shape", "tiles", "shared"),
    [
        ("MEAN", (1, 7, 7, 1024), 256, True),  # a quad of 49 pixels for each group
        ("MEAN", (64, 7, 7, 1024), 64, False),  # 16384 quads, one for each work-item
        ("SOFTMAX", (64, 1001), 64, True),
        ("SOFTMAX", (1, 257, 257, 21), 259, False),
    ],
)
def test_a_group_shares_items_where_there_are_few(code: str, shape: tuple[int, ...], tiles: int, shared: bool) -> None:
    _, plan = plan_model(reduction(code, shape), tflgpu.Options(), H200)
    kernel = next(k.kernel for k in plan.kernels if k.kernel.template in ("reduce", "softmax"))
    assert (kernel.tiles, kernel.parameters["shared"]) == (tiles, shared)
