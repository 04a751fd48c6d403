"""Kernels of crops around landmarks. Matrices have a vec4 for each row."""

from __future__ import annotations

from dataclasses import dataclass
from math import cos, sin

from tflgpu.kernels.architecture import PORTABLE
from tflgpu.kernels.items import ItemParameters, item_kernel
from tflgpu.kernels.kernel import Argument, Kernel, Storage
from tflgpu.kernels.request import Request
from tflgpu.ops.image.mediapipe import Crop
from tflgpu.target import ElementType


@dataclass(frozen=True, kw_only=True)
class CropMatrixParameters(ItemParameters, template="portable/landmarks/crop_matrix", stores_once=True):
    """Parameters of ``templates/portable/landmarks/crop_matrix.cl.j2``."""

    ends: tuple[int, int]
    direction: tuple[float, float]
    scale: tuple[float, float]
    centre: tuple[float, float]
    count: int
    src: Storage


@dataclass(frozen=True, kw_only=True)
class CropParameters(ItemParameters, template="portable/landmarks/crop", stores_once=True):
    """Parameters of ``templates/portable/landmarks/crop.cl.j2``."""

    matrix_type: ElementType
    src: Storage


@dataclass(frozen=True, kw_only=True)
class TransformedLandmarksParameters(
    ItemParameters, template="portable/landmarks/transformed_landmarks", stores_once=True
):
    """Parameters of ``templates/portable/landmarks/transformed_landmarks.cl.j2``."""

    matrix_type: ElementType
    src: Storage


@PORTABLE.lowering("crop_matrix")
def crop_matrix(request: Request) -> Kernel:
    """Each work-item computes a row, from all landmarks that the crop surrounds: there are some hundred."""
    crop = request.attributes(Crop)
    parameters = CropMatrixParameters(
        ends=crop.ends,
        direction=(cos(crop.radians), sin(crop.radians)),
        scale=(crop.scale[0] / crop.size[0], crop.scale[1] / crop.size[1]),
        centre=(crop.size[0] / 2, crop.size[1] / 2),
        count=request.constant(1).size,
        src=request.input(0),
    )
    return _kernel(request, parameters, request.operand("around", 1))


@PORTABLE.lowering("crop")
def crop(request: Request) -> Kernel:
    """Return the pixels of an image that a transformation matrix leads to."""
    matrix = request.activation("matrix", 1)
    return _kernel(request, CropParameters(matrix_type=matrix.type, src=request.input(0)), matrix)


@PORTABLE.lowering("transformed_landmarks")
def transformed_landmarks(request: Request) -> Kernel:
    """Landmarks times a transformation matrix."""
    matrix = request.activation("matrix", 1)
    return _kernel(request, TransformedLandmarksParameters(matrix_type=matrix.type, src=request.input(0)), matrix)


def _kernel(request: Request, parameters: ItemParameters, second: Argument) -> Kernel:
    """second: input 1."""
    return item_kernel(request, parameters, (request.activation("src", 0), second), 60)
