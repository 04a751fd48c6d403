"""Reshapes and movements along strides on CPUs, where pixels and channels of the output move independently."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from tflgpu.graph.layout import LANES
from tflgpu.kernels.access import Digit
from tflgpu.kernels.cpu import CPU
from tflgpu.kernels.items import ItemParameters, item_kernel
from tflgpu.kernels.kernel import Kernel, Storage
from tflgpu.kernels.movement.strided_kernel import moved_unit, strided_of
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import tile_count
from tflgpu.ops.movement.shaping import Factor, axes_of
from tflgpu.target.kernel_numbers import kernel_numbers


@dataclass(frozen=True, kw_only=True)
class MovedPixels:
    """Numbers of movements by runs of pixels.

    Attributes:
        run_pixels: Pixels of an item: enough that it counts for little where the channels of a slice come from.
        operations: Operations that a vec4 is taken to be.
    """

    run_pixels: int
    operations: int


NUMBERS = kernel_numbers("cpu/moved_pixels", MovedPixels)


@dataclass(frozen=True)
class Movement:
    """Share of one axis of the output in the place of an element.

    offsets: elements in the source's memory. channels: channels of the source, where these are no offsets.
    """

    offsets: Sequence[Digit]
    channels: Sequence[Digit]


@dataclass(frozen=True)
class Source:
    """Where an element comes from: ``offset`` elements, and ``channel``, plus what both axes of the output add."""

    offset: int
    channel: int
    of_pixel: Movement
    of_channel: Movement


@dataclass(frozen=True, kw_only=True)
class MovedPixelsParameters(ItemParameters, template="cpu/moved_pixels", stores_once=True):
    """Parameters of ``templates/cpu/moved_pixels.cl.j2``."""

    whole_vec4s: bool
    run: int
    source: Source
    src: Storage


def _has_source(request: Request) -> bool:
    return _source(request) is not None


@CPU.lowering("reshape", when=_has_source, reads_grids=True)
@CPU.lowering("strided", when=_has_source, reads_grids=True)
def moved_pixels(request: Request) -> Kernel:
    """Return a movement whose items are runs of pixels of a slice: where its channels come from is found once for a
    run."""
    g, src, source = request.output.geometry, request.input(0), _source(request)
    assert source is not None
    run = min(NUMBERS.run_pixels, g.pixels)
    unit, _ = moved_unit(strided_of(request), src, request.output)
    parameters = MovedPixelsParameters(whole_vec4s=unit != "element", run=run, source=source, src=src)
    items = tile_count(g.pixels, run) * g.slices
    arguments = [request.activation("src", 0)]
    return item_kernel(request, parameters, arguments, NUMBERS.operations * run, items=items, value_type=src.vector)


def _source(request: Request) -> Source | None:
    """Where elements come from; None if pixels and channels of the output do not move independently."""
    g, src, strided = request.output.geometry, request.input(0), strided_of(request)
    axes = axes_of(strided, (g.pixels, g.channels))
    if axes is None:
        return None
    levels = src.plane * src.channels, src.channels
    split = [[part for factor in axis for part in _split(factor, levels)] for axis in axes]
    # The image, the pixel in it and the channel that each digit adds; none of their sums may reach the next one's unit.
    first = _places(strided.start, levels)
    most = [
        n + sum((f.extent - 1) * _places(f.stride, levels)[i] for a in split for f in a) for i, n in enumerate(first)
    ]
    if not src.linear and (most[1] >= src.plane or most[2] >= src.channels):
        return None
    of_pixel, of_channel = (_movement(axis, src) for axis in split)
    offset, channel = _offset(strided.start, src)
    return Source(offset, channel, of_pixel, of_channel)


def _split(factor: Factor, levels: Iterable[int]) -> list[Factor]:
    """Return a factor as several, the most significant first, each of which stays in one level where it is possible."""
    parts: list[Factor] = []
    for unit in levels:
        inner = unit // factor.stride if factor.stride and unit % factor.stride == 0 else 0
        if 1 < inner < factor.extent and factor.extent % inner == 0:
            parts.append(Factor(factor.extent // inner, unit))
            factor = Factor(inner, factor.stride)
    return [*parts, factor]


def _places(elements: int, levels: tuple[int, int]) -> tuple[int, int, int]:
    """Return a number of elements as images, pixels and channels."""
    image, pixel = levels
    return elements // image, elements % image // pixel, elements % pixel


def _offset(elements: int, src: Storage) -> tuple[int, int]:
    """Return a number of elements, in row-major order, as an offset in memory, and as channels that are none."""
    if src.linear:
        return elements, 0
    image, pixel, channel = _places(elements, (src.plane * src.channels, src.channels))
    offset = LANES * (image * src.slices * src.plane + pixel)
    return (offset + channel, 0) if src.plane == 1 else (offset, channel)


def _movement(factors: Sequence[Factor], src: Storage) -> Movement:
    """Return what the digits of an axis add."""
    offsets, channels = list[Digit](), list[Digit]()
    for i, factor in enumerate(factors):
        divisor = prod(f.extent for f in factors[i + 1 :])
        extent = factor.extent if i else None
        for stride, digits in zip(_offset(factor.stride, src), (offsets, channels), strict=True):
            if stride:
                digits.append(Digit(divisor, extent, stride))
    return Movement(offsets, channels)
