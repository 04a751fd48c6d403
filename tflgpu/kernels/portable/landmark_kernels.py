"""Kernels of crops around landmarks. Matrices have a vec4 for each row."""

from __future__ import annotations

from math import cos, sin
from typing import Any

from tflgpu.kernels.architecture import PORTABLE
from tflgpu.kernels.items import item_kernel
from tflgpu.kernels.kernel import Argument, Kernel
from tflgpu.kernels.request import Request
from tflgpu.ops.image.landmarks import Crop


@PORTABLE.lowering("crop_matrix")
def crop_matrix(request: Request) -> Kernel:
    """Each work-item computes a row, from all landmarks that the crop surrounds: there are some hundred."""
    crop = request.node.attributes
    assert isinstance(crop, Crop)
    parameters = {
        "ends": crop.ends,
        "direction": (cos(crop.radians), sin(crop.radians)),
        "scale": (crop.scale[0] / crop.size[0], crop.scale[1] / crop.size[1]),
        "centre": (crop.size[0] / 2, crop.size[1] / 2),
        "count": request.constant(1).size,
    }
    return _kernel(request, "portable/landmarks/crop_matrix", parameters, request.operand("around", 1))


@PORTABLE.lowering("crop")
def crop(request: Request) -> Kernel:
    matrix = request.activation("matrix", 1)
    return _kernel(request, "portable/landmarks/crop", {"matrix_type": matrix.type}, matrix)


@PORTABLE.lowering("transformed_landmarks")
def transformed_landmarks(request: Request) -> Kernel:
    matrix = request.activation("matrix", 1)
    return _kernel(request, "portable/landmarks/transformed_landmarks", {"matrix_type": matrix.type}, matrix)


def _kernel(request: Request, template: str, parameters: dict[str, Any], second: Argument) -> Kernel:
    """second: input 1."""
    arguments = request.activation("src", 0), second
    return item_kernel(request, template, {**parameters, "src": request.input(0)}, arguments, 60)
