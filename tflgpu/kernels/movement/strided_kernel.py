"""The kernel of reshapes, and of movements that strides tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from tflgpu.graph.layout import LANES
from tflgpu.kernels.architecture import PORTABLE
from tflgpu.kernels.items import ItemParameters
from tflgpu.kernels.kernel import Kernel, Storage
from tflgpu.kernels.movement.rearrange import copy_kernel
from tflgpu.kernels.request import Request
from tflgpu.ops.movement.strided import Factor, Strided, whole


@dataclass(frozen=True)
class Digit:
    """``index / divisor % extent * stride`` units; without an extent there is nothing above it."""

    divisor: int
    extent: int | None
    stride: int


@dataclass(frozen=True, kw_only=True)
class StridedParameters(ItemParameters, template="movement/strided"):
    """Parameters of ``templates/movement/strided.cl.j2``."""

    unit: str
    start: int
    digits: Sequence[Digit]
    src: Storage


@PORTABLE.lowering("reshape", reads_grids=True)
@PORTABLE.lowering("strided", reads_grids=True)
def strided_kernel(request: Request) -> Kernel:
    """A reshape, or a movement along strides, in units that stay together."""
    source, strided = request.input(0), strided_of(request)
    name, unit = moved_unit(strided, source, request.output)
    digits = _digits(strided.factors, unit)
    return copy_kernel(request, StridedParameters(unit=name, start=strided.start // unit, digits=digits, src=source))


def strided_of(request: Request) -> Strided:
    """The movement of a node of either kind."""
    attributes = request.node.attributes
    return attributes if isinstance(attributes, Strided) else whole(prod(request.output.geometry.shape))


def moved_unit(strided: Strided, source: Storage, output: Storage) -> tuple[str, int]:
    """What stays together: its name, and its elements."""
    channels = output.geometry.channels
    if source.channels == channels and not (source.linear and channels % LANES) and _keeps(strided, channels):
        return "pixel", channels
    if source.channels % LANES == channels % LANES == 0 and _keeps(strided, LANES):
        return "vec4", LANES
    return "element", 1


def _keeps(strided: Strided, unit: int) -> bool:
    """Whether elements stay in units of ``unit`` neighbours."""
    *outer, last = strided.factors or (Factor(1, 1),)
    together = last.stride == 1 and last.extent % unit == 0
    return unit == 1 or (together and all(n % unit == 0 for n in (strided.start, *(f.stride for f in outer))))


def _digits(factors: tuple[Factor, ...], unit: int) -> list[Digit]:
    """The digits of a unit's index, the most significant first. A unit's elements are neighbours of the last factor."""
    digits, divisor = list[Digit](), 1
    for i, f in reversed(list(enumerate(factors))):
        extent, stride = (f.extent // unit, f.stride) if i == len(factors) - 1 else (f.extent, f.stride // unit)
        digits.insert(0, Digit(divisor, None if i == 0 else extent, stride))
        divisor *= extent
    return digits
