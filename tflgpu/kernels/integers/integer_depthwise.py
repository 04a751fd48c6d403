"""Depthwise convolutions of 8-bit integers, whose sums of whole numbers are exact in float."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from tflgpu.graph.layout import LANES, Size, pack
from tflgpu.kernels.convolutions import unrolls
from tflgpu.kernels.cpu.row_kernels import MOST_TAPS
from tflgpu.kernels.integers import INTEGERS
from tflgpu.kernels.integers.integer_operands import MOST, WholeWeights, whole_weights
from tflgpu.kernels.kernel import Argument, Kernel, Parameters, Storage
from tflgpu.kernels.packing import padded_bias
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import items_per_tile, local_vec4s, tile_count
from tflgpu.ops.image.convolution import Depthwise
from tflgpu.ops.image.window import Window, span
from tflgpu.target import FLOAT_WHOLE


@dataclass(frozen=True, kw_only=True)
class IntegerDepthwiseParameters(Parameters, template="integers/integer_depthwise", stores_once=True):
    """Parameters of ``templates/integers/integer_depthwise.cl.j2``."""

    window: Window
    unrolled: bool
    upright: bool
    chunks: Size
    rows_per_tile: Size
    ring: Size
    columns: Size
    adds_bias: bool
    src: Storage


@dataclass(frozen=True)
class _Rows:
    """The rows of an image in local memory. upright: whether they are columns of the image.

    ring: rows that two windows see, one below the other. columns: of each remainder by the stride, in fours.
    """

    upright: bool
    height: int
    width: int
    ring: int
    columns: int
    stride: int

    @property
    def vec4s(self) -> int:
        """Local memory for them, and for one of zeros."""
        return (self.ring + 1) * self.columns * self.stride


def _rows(request: Request) -> _Rows:
    attributes, src, g = request.attributes(Depthwise), request.input(0), request.output.geometry
    window = attributes.window
    upright = src.geometry.width == g.width == 1 and window.kernel[1] == 1
    across, along = (1, 0) if upright else (0, 1)
    before = window.padding.top if upright else window.padding.left
    image_height, image_width = (1, src.height) if upright else (src.height, src.width)
    height, width = (1, g.height) if upright else (g.height, g.width)
    stride = window.stride[along]
    seen = (tile_count(width, LANES) * LANES - 1) * stride + span(window.kernel[along], window.dilation[along])
    ring = min(span(window.kernel[across], window.dilation[across]) + window.stride[across], image_height)
    columns = tile_count(tile_count(max(before + image_width, seen), stride), LANES) * LANES
    return _Rows(upright, height, width, ring, columns, stride)


def sums_are_exact(request: Request) -> bool:
    """Whether a depthwise convolution adds up whole numbers, and has room for the rows that a window sees."""
    attributes, src = request.node.attributes, request.input(0)
    if not isinstance(attributes, Depthwise) or attributes.multiplier != 1 or request.target.arithmetic == "half":
        return False
    if src.grid is None or src.linear or request.is_constant(0):
        return False
    if request.is_computed(2):
        return False
    taps = prod(attributes.window.kernel)
    weights = whole_weights(request) if taps <= MOST_TAPS else None
    if weights is None or MOST * int(np.abs(weights.integers).max(initial=0)) * taps > FLOAT_WHOLE:
        return False
    return _rows(request).vec4s <= local_vec4s(request.target)


@INTEGERS.lowering("depthwise", when=sums_are_exact, reads_grids=True)
def integer_depthwise(request: Request) -> Kernel:
    """Return a depthwise convolution whose tile is some rows of a slice."""
    attributes, src, g = request.node.attributes, request.input(0), request.output.geometry
    weights, rows = whole_weights(request), _rows(request)
    assert isinstance(attributes, Depthwise) and src.grid is not None and weights is not None
    taps, bias = prod(attributes.window.kernel), request.optional_constant(2)
    per_tile = min(
        rows.height, items_per_tile(rows.height * g.slices * g.batch, request.target, 2 * taps * LANES * rows.width)
    )
    chunks = tile_count(rows.height, per_tile)
    parameters = IntegerDepthwiseParameters(
        window=attributes.window,
        unrolled=unrolls(attributes),
        upright=rows.upright,
        chunks=chunks,
        rows_per_tile=per_tile,
        ring=rows.ring,
        columns=rows.columns,
        adds_bias=bias is not None,
        src=src,
    )
    arguments = [request.activation("src", 0), *_weights(request, weights, src.grid.scale)]
    if bias is not None:
        arguments.append(Argument("bias", "float", None, padded_bias(bias, g.slices * LANES)))
    tiles = g.batch * g.slices * chunks
    return Kernel(
        parameters, tuple(arguments), tiles, local_size=1, workspace=rows.vec4s, macs=taps * g.pixels * g.channels
    )


def _weights(request: Request, weights: WholeWeights, image_scale: float) -> tuple[Argument, Argument]:
    """Return the weights, and what a sum of each channel is multiplied by."""
    floats = np.moveaxis(weights.integers.astype(np.float32), 0, -1)
    factors = (image_scale * weights.scale).astype(np.float32)
    size = request.output.slices * LANES
    return Argument("weights", "float", None, pack(floats)), Argument(
        "factors", "float", None, padded_bias(factors, size)
    )
