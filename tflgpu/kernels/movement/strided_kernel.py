"""The kernel of reshapes, and of movements that strides tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from tflgpu.graph.layout import LANES, Size
from tflgpu.kernels.access import Digit, digits_of, keeps_units, keeps_vec4s
from tflgpu.kernels.architecture import PORTABLE
from tflgpu.kernels.items import ItemParameters
from tflgpu.kernels.kernel import Kernel, Storage
from tflgpu.kernels.movement.rearrange import copy_kernel
from tflgpu.kernels.request import Request
from tflgpu.ops.movement.shaping import Strided, whole


@dataclass(frozen=True, kw_only=True)
class StridedParameters(ItemParameters, template="movement/strided", stores_once=True):
    """Parameters of ``templates/movement/strided.cl.j2``."""

    unit: str
    start: Size
    digits: Sequence[Digit]
    src: Storage


@PORTABLE.lowering("reshape", reads_grids=True)
@PORTABLE.lowering("strided", reads_grids=True)
def strided_kernel(request: Request) -> Kernel:
    """Return a reshape, or a movement along strides, in units that stay together."""
    source, strided = request.input(0), strided_of(request)
    name, unit = moved_unit(strided, source, request.output)
    digits = digits_of(strided.factors, unit)
    return copy_kernel(request, StridedParameters(unit=name, start=strided.start // unit, digits=digits, src=source))


def strided_of(request: Request) -> Strided:
    """Return the movement of a node of either kind."""
    attributes = request.node.attributes
    return attributes if isinstance(attributes, Strided) else whole(prod(request.output.geometry.shape))


def moved_unit(strided: Strided, source: Storage, output: Storage) -> tuple[str, int]:
    """Return what stays together: its name, and its elements."""
    channels = output.geometry.channels
    if source.channels == channels and not (source.linear and channels % LANES) and keeps_units(strided, channels):
        return "pixel", channels
    if keeps_vec4s(strided, source.geometry, output.geometry):
        return "vec4", LANES
    return "element", 1
