"""Custom operators of MediaPipe's face mesh with attention: what leads to a crop around landmarks, and back.

Of version 2, as in mediapipe/util/tflite/operations of google-ai-edge/mediapipe. Their options are maps of FlexBuffers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

from tflgpu.graph.ir import Tensor
from tflgpu.graph.layout import Shape
from tflgpu.model.operator_options import map_of_options
from tflgpu.ops.declaration import Emitter, Site, declare, judged

MATRIX: Shape = (1, 4, 4)
MOST = 1 << 14  # pixels of a crop along an axis


@dataclass(frozen=True)
class Crop:
    """Inputs: landmarks [1, n, 3] as (x, y, z), and the numbers of some of them. The matrix from a crop to the image.

    The line from landmark ``ends[0]`` to ``ends[1]`` has the angle ``radians`` in the crop, which is ``scale`` times as
    large as the box around the landmarks of the second input. size: of the crop in pixels. Both as (x, y).
    """

    ends: tuple[int, int]
    radians: float
    scale: tuple[float, float]
    size: tuple[int, int]


def _numbers(options: Mapping[str, Any], *names: str) -> tuple[float, ...] | None:
    values = [options.get(name) for name in names]
    if not all(isinstance(v, int | float) and not isinstance(v, bool) and isfinite(v) for v in values):
        return None
    return tuple(values)  # type: ignore[arg-type]


def _whole(values: Sequence[Any] | None, least: int, most: int) -> tuple[int, ...] | None:
    """Return the values, if they are whole numbers from ``least`` to ``most``."""
    if values is None or not all(isinstance(v, int) and least <= v <= most for v in values):
        return None
    return tuple(values)


def _size(options: Mapping[str, Any]) -> tuple[int, ...] | None:
    return _whole(_numbers(options, "output_width", "output_height"), 1, MOST)


def _crop(site: Site) -> tuple[Crop, tuple[int, ...]] | None:
    """Return the crop, and the landmarks that it surrounds; None if the options are not those of one."""
    options, most = map_of_options(site.options["custom_options"]), site.input(0).shape[1] - 1
    around = options.get("subset_idxs")
    scale, radians = _numbers(options, "scale_x", "scale_y"), _numbers(options, "target_rotation_radians")
    ends = _whole(_numbers(options, "left_rotation_idx", "right_rotation_idx"), 0, most)
    size, subset = _size(options), _whole(around if isinstance(around, list) else None, 0, most)
    if scale is None or min(scale) <= 0 or radians is None or ends is None or size is None or not subset:
        return None
    return Crop((ends[0], ends[1]), radians[0], (scale[0], scale[1]), (size[0], size[1])), subset


def _crop_reasons(site: Site) -> Iterator[str]:
    shape = site.input(0).shape
    if len(shape) != 3 or shape[0] != 1 or shape[2] != 3:
        yield f"its landmarks have shape {list(shape)}; [1, landmarks, 3] was expected"
    elif _crop(site) is None:
        yield "its options are not two landmarks for the angle, some to surround, an angle, scales and sizes"


@declare("Landmarks2TransformMatrix", versions=2, inputs=1, empty=False, reasons=_crop_reasons)
def landmarks_to_transform_matrix(site: Site, emit: Emitter) -> Tensor:
    """MediaPipe's matrix of the crop that surrounds landmarks."""
    crop, around = judged(_crop(site))
    inputs = site.input(0), emit.constant(np.array(around, np.int32))
    return emit.node("crop_matrix", inputs, MATRIX, crop, dtype="float32", precise=True)


def _matrix_reasons(site: Site) -> Iterator[str]:
    if site.input(1).shape != MATRIX:
        yield f"its matrix has shape {list(site.input(1).shape)}; {list(MATRIX)} was expected"


def _image_reasons(site: Site) -> Iterator[str]:
    yield from _matrix_reasons(site)
    shape = site.input(0).shape
    if len(shape) != 4 or shape[0] != 1:
        yield f"its image has shape {list(shape)}; [1, height, width, channels] was expected"
    if site.version < 2 or _size(map_of_options(site.options["custom_options"])) is None:
        yield "its options are not a height and a width of version 2"


@declare("TransformTensorBilinear", versions=2, inputs=2, empty=False, reasons=_image_reasons)
def transform_tensor_bilinear(site: Site, emit: Emitter) -> Tensor:
    """Return a crop of an image: bilinear samples at the places to which the matrix leads, zeros outside of the
    image."""
    image, (width, height) = site.input(0), judged(_size(map_of_options(site.options["custom_options"])))
    return emit.node("crop", [image, site.input(1)], (1, height, width, image.shape[3]))


def _landmark_reasons(site: Site) -> Iterator[str]:
    yield from _matrix_reasons(site)
    shape = site.input(0).shape
    if len(shape) != 3 or shape[0] != 1 or shape[2] not in (2, 3):
        yield f"its landmarks have shape {list(shape)}; [1, landmarks, 2 or 3] was expected"


@declare("TransformLandmarks", versions=2, inputs=2, empty=False, reasons=_landmark_reasons)
def transform_landmarks(site: Site, emit: Emitter) -> Tensor:
    """Return the matrix leads landmarks of a crop to the image; z stays."""
    landmarks = site.input(0)
    return emit.node("transformed_landmarks", [landmarks, site.input(1)], landmarks.shape, precise=True)
