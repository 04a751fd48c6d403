"""Convolutions of large images of few channels on tensor cores: work-groups share rows of the image in local memory."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from tflgpu.graph.ir import Array
from tflgpu.graph.layout import LANES
from tflgpu.kernels.candidates import Candidate, Tile
from tflgpu.kernels.demand import cycles
from tflgpu.kernels.kernel import Kernel, Storage
from tflgpu.kernels.mma.costs import RowsWork
from tflgpu.kernels.mma.gemm.k_tiles import HALF_BYTES, LOCAL_BYTES, left_arguments
from tflgpu.kernels.mma.gemm.skeletons import LocalMemoryParameters
from tflgpu.kernels.mma.m16n8k16 import M16N8K16 as UNIT
from tflgpu.kernels.mma.m16n8k16 import Operands
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import tile_count
from tflgpu.ops.image.window import Window, span
from tflgpu.target import Target

WARPS = 4
PAIRS = UNIT.side // 2  # of elements, in a k-step
GROUP_PIXELS = UNIT.side // 2  # of the right side of a product
ACCUMULATORS = 14  # groups of pixels times blocks of channels, of a warp


@dataclass(frozen=True)
class RowsTile(Tile):
    """A warp tile: ``groups`` groups of 8 pixels of a row, by ``column_blocks`` blocks of 32 output channels."""

    groups: int
    column_blocks: int


def tile_of(dst: Storage) -> RowsTile:
    """Return the widest tile of those that compute the fewest pixels in vain."""
    column_blocks = min(2, tile_count(dst.slices * LANES, UNIT.left_columns))
    width = tile_count(dst.width, GROUP_PIXELS)
    most = ACCUMULATORS // column_blocks
    groups = min(range(1, most + 1), key=lambda n: (tile_count(width, n) * n, -n))
    return RowsTile(groups, column_blocks)


def pixel_elements(src: Storage) -> int:
    """Elements of a pixel in memory, of an image of one slice."""
    return src.channels if src.linear else LANES


def tiles_of(dst: Storage) -> int:
    """How many work-groups a result takes."""
    tile = tile_of(dst)
    segments = tile_count(dst.width, tile.groups * GROUP_PIXELS)
    return dst.batch * tile_count(dst.height, WARPS) * segments * _column_tiles(dst, tile)


def _column_tiles(dst: Storage, tile: RowsTile) -> int:
    return tile_count(dst.slices * LANES, tile.column_blocks * UNIT.left_columns)


def _lead(window: Window, src: Storage) -> int:
    """Elements between an even place and the next window."""
    return window.padding.left * pixel_elements(src) % 2


def _row_quads(window: Window, src: Storage, dst: Storage) -> int:
    """Quads of elements in local memory, for what all windows of a tile see of one row."""
    width = tile_of(dst).groups * GROUP_PIXELS
    seen = (width - 1) * window.stride[1] + window.kernel[1]
    return tile_count(seen * pixel_elements(src) + LANES - 1, LANES)


def _workspace(window: Window, src: Storage, dst: Storage) -> int:
    """float4 elements of local memory: the rows, and one for what lies after the last row's end."""
    rows = (WARPS - 1) * window.stride[0] + span(window.kernel[0], window.dilation[0])
    return tile_count(rows * _row_quads(window, src, dst) * LANES * HALF_BYTES, 16) + 1


def is_possible(operands: Operands, window: Window, src: Storage, dst: Storage, target: Target) -> bool:
    """Whether pairs of elements are pairs in every window, channels fill a block, and all compute units have a tile."""
    if target.executor != "launch" or not operands.are_halves or src.slices > 1 or dst.slices * LANES < UNIT.side:
        return False
    elements = pixel_elements(src)
    return (
        window.dilation[1] == 1
        and window.stride[1] * elements % 2 == 0
        and window.kernel[1] * elements >= 2 * (LANES - 1)  # four pairs lie in two rows at most
        and 16 * _workspace(window, src, dst) <= min(LOCAL_BYTES, target.limits.local_bytes)
        and tiles_of(dst) >= target.compute_units
    )


def best(window: Window, src: Storage, dst: Storage, target: Target) -> Candidate[RowsTile, RowsWork]:
    """Return the tile of a convolution that is possible."""
    tile = tile_of(dst)
    work = RowsWork(tiles_of(dst), _k_steps(window, src), WARPS, 2 * tile.groups * tile.column_blocks)
    return Candidate(tile, work, cycles(work, target))


def _k_steps(window: Window, src: Storage) -> int:
    row_pairs = tile_count(_lead(window, src) + window.kernel[1] * pixel_elements(src), 2)
    return tile_count(window.kernel[0] * row_pairs, PAIRS)


def pairs_of_rows(weights: Array, elements: int, lead: int) -> Array:
    """[out, kh, kw, in], of at most ``elements`` inputs -> [out, 1, 1, 16 * k-steps], in the order of ``pack_left``.

    A row of the window is ``lead`` zeros, kw * elements numbers, and a zero if these are odd. Thread t of four, whose
    inputs are 4t to 4t + 3 of 16, takes pairs t and 4 + t of eight.
    """
    out, kh, kw, depth = weights.shape
    row_pairs = tile_count(lead + kw * elements, 2)
    padded = np.zeros((out, kh, kw, elements), np.float32)
    padded[..., :depth] = weights
    rows = np.zeros((out, kh, 2 * row_pairs), np.float32)
    rows[..., lead : lead + kw * elements] = padded.reshape(out, kh, -1)
    k_steps = tile_count(kh * row_pairs, PAIRS)
    pairs = np.zeros((out, k_steps * 2 * PAIRS), np.float32)
    pairs[:, : 2 * kh * row_pairs] = rows.reshape(out, -1)
    return pairs.reshape(out, k_steps, 2, 4, 2).swapaxes(2, 3).reshape(out, 1, 1, -1)


@dataclass(frozen=True, kw_only=True)
class RowsParameters(LocalMemoryParameters, template="mma/gemm/rows", stores_once=True):
    """Parameters of ``templates/mma/gemm/rows.cl.j2``."""

    window: Window
    groups: int
    pixel_elements: int
    lead: int
    row_quads: int


def kernel(request: Request, window: Window, weights: Array, bias: Array | None) -> Kernel:
    """Return the kernel of a convolution with ``weights`` [out, kh, kw, in]."""
    src, dst = request.input(0), request.output
    tile, elements, lead = tile_of(dst), pixel_elements(src), _lead(window, src)
    in_order = pairs_of_rows(weights, elements, lead)
    packed = UNIT.pack_left(in_order, tile.column_blocks, in_order.shape[-1] // (2 * PAIRS))
    return Kernel(
        RowsParameters(
            window=window,
            groups=tile.groups,
            column_blocks=tile.column_blocks,
            pixel_elements=elements,
            lead=lead,
            row_quads=_row_quads(window, src, dst),
            column_tiles=_column_tiles(dst, tile),
            src=src,
        ),
        left_arguments(request, packed, bias),
        tiles=tiles_of(dst),
        local_size=WARPS * UNIT.lanes,
        workspace=_workspace(window, src, dst),
        macs=dst.geometry.pixels * dst.channels * prod(window.kernel) * src.channels,
    )
