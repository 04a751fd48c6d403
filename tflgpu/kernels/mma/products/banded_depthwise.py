"""Depthwise convolutions of large windows on matrix units: products of overlapping rows by banded matrices of weights.

A convolution along a line is a product with a Toeplitz matrix. Of eight outputs side by side that has the taps in each
of eight columns, a place further down in each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np

from tflgpu.graph.ir import Array
from tflgpu.graph.layout import LANES
from tflgpu.kernels.candidates import Candidate, TileConfig, ranked
from tflgpu.kernels.convolutions import bias_argument
from tflgpu.kernels.gpu.depthwise_windows import window_cycles
from tflgpu.kernels.kernel import Kernel
from tflgpu.kernels.mma import MMA
from tflgpu.kernels.mma.costs import BandedWork, banded_cycles
from tflgpu.kernels.mma.m16n8k16 import M16N8K16 as UNIT
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import local_vec4s, tile_count
from tflgpu.ops.image.convolution import Depthwise
from tflgpu.ops.image.window import Window

OUTPUTS = 8  # of a row of the left side
LINES = (1, 2, 4, 8, 16)
BLOCKS = (1, 2, 4, 8, 16, 32, 64)
ROW_BLOCKS = (1, 2, 4, 8)
AT_ONCE = 4  # k-steps whose weights are under way
HALVES = 8  # of a float4

# Taps of a window from which on products are considered, and the part of the time that they must take by the cost
# model. On an H100 21 of 22 convolutions that keep to both took 0.29 to 0.97 of the time of the other kernel.
LEAST_TAPS = 100
GAIN = 0.3


@dataclass(frozen=True)
class BandedTile:
    """``lines`` lines of 8 * ``blocks`` outputs along ``axis``, of which a warp computes ``row_blocks`` * 128."""

    axis: int
    lines: int
    blocks: int
    row_blocks: int

    @property
    def config(self) -> TileConfig:
        return self.axis, self.lines, self.blocks


def k_steps(window: Window, axis: int) -> int:
    """Blocks of 16 inner indices that the taps of a line take, for the last of 8 outputs so many places further."""
    return tile_count(window.kernel[axis] + (OUTPUTS - 1) * window.stride[axis], UNIT.side)


def _patch(window: Window, tile: BandedTile) -> tuple[int, int]:
    """Lines and elements of each that a work-group's windows see."""
    across = 1 - tile.axis
    rows = (tile.lines - 1) * window.stride[across] + (window.kernel[across] - 1) * window.dilation[across] + 1
    return rows, OUTPUTS * (tile.blocks - 1) * window.stride[tile.axis] + UNIT.side * k_steps(window, tile.axis)


def _pitch(elements: int) -> int:
    """Elements from line to line, so that eight lines begin in banks of local memory that are four words apart."""
    return (elements + 7) // 16 * 16 + 8


def _workspace(window: Window, tile: BandedTile) -> int:
    rows, elements = _patch(window, tile)
    return max(tile_count(LANES * rows * _pitch(elements), HALVES), tile.lines * tile.blocks * OUTPUTS)


def _tiles(request: Request, window: Window) -> Iterator[BandedTile]:
    parts = request.target.local_size // UNIT.lanes // LANES
    for axis, lines, blocks in product((1, 0), LINES, BLOCKS):
        row_blocks, rest = divmod(lines * blocks, UNIT.side * parts)
        tile = BandedTile(axis, lines, blocks, row_blocks)
        fits = window.dilation[axis] == 1 and not rest and row_blocks in ROW_BLOCKS
        if fits and _workspace(window, tile) <= local_vec4s(request.target):
            yield tile


def _candidates(request: Request) -> list[Candidate[BandedTile, BandedWork]]:
    attributes, target, dst = request.node.attributes, request.target, request.output
    assert isinstance(attributes, Depthwise)
    window = attributes.window

    def work(tile: BandedTile) -> BandedWork:
        size = dst.height, dst.width
        segments = tile_count(size[tile.axis], OUTPUTS * tile.blocks) * tile_count(size[1 - tile.axis], tile.lines)
        return BandedWork(
            tiles=dst.batch * dst.slices * segments,
            k_steps=window.kernel[1 - tile.axis] * k_steps(window, tile.axis),
            row_blocks=tile.row_blocks,
            patch=prod(_patch(window, tile)),
            results=tile.lines * tile.blocks * OUTPUTS,
        )

    return ranked(_tiles(request, window), work, lambda work: banded_cycles(work, target))


def _is_faster(request: Request) -> bool:
    """Whether a depthwise convolution of halves takes less time as products.

    Images of one slice are left to :mod:`.dense_depthwise`, whose gain was measured.
    """
    node, image = request.node, request.input(0)
    if not isinstance(node.attributes, Depthwise) or prod(node.attributes.window.kernel) < LEAST_TAPS:
        return False
    if request.shares > 1 or request.value(1) is None or {image.type, request.target.storage} != {"half"}:
        return False
    if image.slices == 1:
        return False
    found = _candidates(request)
    return bool(found) and found[0].cycles < GAIN * window_cycles(request)


def banded(weights: Array, stride: int, axis: int, channels: int) -> Array:
    """[1, kh, kw, channels] -> [channel][line][k-step][lane][4], of ``channels``, those past the last one zero.

    The right side of products: inner index n of column j has tap n - stride * j of the line. Lane 4g + t holds inner
    indices 2t, 2t + 1, 2t + 8 and 2t + 9 of column g.
    """
    lines = np.moveaxis(weights[0], 2, 0)  # [channel, kh, kw]
    if axis == 0:
        lines = lines.swapaxes(1, 2)
    own, across, taps = lines.shape
    depth = tile_count(taps + (OUTPUTS - 1) * stride, UNIT.side) * UNIT.side
    columns = np.zeros((channels, across, depth, OUTPUTS), np.float32)
    for j in range(OUTPUTS):
        columns[:own, :, stride * j : stride * j + taps, j] = lines
    # n = 16 step + 8 high + 2 t + i
    axes = columns.reshape(channels, across, depth // UNIT.side, 2, 4, 2, OUTPUTS)
    return np.ascontiguousarray(axes.transpose(0, 1, 2, 6, 4, 3, 5)).reshape(channels, across, -1, UNIT.lanes, 4)


@MMA.lowering("depthwise", when=_is_faster, best=lambda request: _candidates(request)[0])
def banded_depthwise(request: Request) -> Kernel:
    """For windows of any size and channel multiplier."""
    attributes, g, target = request.node.attributes, request.output.geometry, request.target
    assert isinstance(attributes, Depthwise)
    window, chosen = attributes.window, request.choose_candidate(_candidates(request))
    tile, channels = chosen.tile, request.output.slices * LANES
    packed = banded(request.constant(1), window.stride[tile.axis], tile.axis, channels)
    return Kernel(
        "mma/products/banded_depthwise",
        {
            "window": window,
            "multiplier": attributes.multiplier,
            "axis": tile.axis,
            "lines": tile.lines,
            "blocks": tile.blocks,
            "row_blocks": tile.row_blocks,
            "k_steps": k_steps(window, tile.axis),
            "pitch": _pitch(_patch(window, tile)[1]),
            "at_once": min(AT_ONCE, chosen.work.k_steps),
            "src": request.input(0),
        },
        (request.activation("src", 0), request.weights("weights", packed), bias_argument(request, channels)),
        tiles=chosen.work.tiles,
        local_size=target.local_size,
        workspace=_workspace(window, tile),
        macs=prod(window.kernel) * g.pixels * g.channels,
    )
