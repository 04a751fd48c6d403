"""Crops around landmarks: matrices whose numbers are known, and options that make none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tflgpu
from tests.kernels.portable import crops
from tflgpu.model.writer import ModelBuilder

# Corners of a box of 4 by 2 pixels, and its centre.
BOX = np.array([[[0, 0, 9], [4, 0, 9], [0, 2, 9], [4, 2, 9], [2, 1, 9]]], np.float32)
OPTIONS = {
    "left_rotation_idx": 0,
    "right_rotation_idx": 1,
    "subset_idxs": [0, 1, 2, 3],
    "target_rotation_radians": 0.0,
    "scale_x": 1.0,
    "scale_y": 1.0,
    "output_width": 4,
    "output_height": 2,
}


def model(options: dict[str, Any]) -> bytes:
    builder = ModelBuilder()
    matrix = builder.tensor((1, 4, 4))
    packed = crops.packed(options)
    builder.op("Landmarks2TransformMatrix", [builder.input(BOX.shape)], [matrix], version=2, custom_options=packed)
    return builder.finish([matrix])


@pytest.mark.parametrize(
    ("changed", "x", "y"),
    [
        ({}, (1, 0, 0), (0, 1, 0)),
        ({"output_width": 8}, (0.5, 0, 0), (0, 1, 0)),
        ({"scale_x": 2.0}, (2, 0, -2), (0, 1, 0)),
        ({"right_rotation_idx": 2}, (0, -2, 4), (0.5, 0, 0)),  # the crop's x runs along the image's y
        ({"left_rotation_idx": 4, "right_rotation_idx": 4}, (1, 0, 0), (0, 1, 0)),  # no line has no angle
        ({"target_rotation_radians": np.pi}, (-1, 0, 4), (0, -1, 2)),
    ],
    ids=str,
)
def test_a_crop_of_a_box_is_known(
    changed: dict[str, Any], x: tuple[float, ...], y: tuple[float, ...], device_name: str
) -> None:
    """(x, y, 1) in the crop gives x and y in the image."""
    (got,) = tflgpu.compile(model(OPTIONS | changed), tflgpu.Options(device=device_name)).run(BOX).values()
    expected = np.array([[*x[:2], 0, x[2]], [*y[:2], 0, y[2]], [0, 0, 1, 0], [0, 0, 0, 1]])
    np.testing.assert_allclose(got[0], expected, atol=1e-5)


@pytest.mark.parametrize(
    "changed",
    [
        {"subset_idxs": []},
        {"subset_idxs": [5]},
        {"subset_idxs": 1},
        {"left_rotation_idx": -1},
        {"scale_x": 0.0},
        {"scale_x": "none"},
        {"target_rotation_radians": "none"},
        {"output_width": 0},
        {"output_height": 1.5},
    ],
    ids=str,
)
def test_options_that_make_no_crop_are_refused(changed: dict[str, Any], device_name: str) -> None:
    with pytest.raises(tflgpu.TflgpuError, match="its options are not two landmarks"):
        tflgpu.compile(model(OPTIONS | changed), tflgpu.Options(device=device_name, fallback="forbid"))
