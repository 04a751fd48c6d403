"""Convolutions of stride 1 on tensor cores, for large images: all taps read one copy of the image in local memory.

These kernels are for launches, like :mod:`k_tiles`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from tflgpu.graph.ir import Array
from tflgpu.kernels.candidates import Candidate, Tile, TileConfig, ranked
from tflgpu.kernels.kernel import Kernel, Storage
from tflgpu.kernels.mma.costs import PatchWork
from tflgpu.kernels.mma.gemm.k_tiles import HALF_BYTES, LOCAL_BYTES, GroupTile, GroupTileParameters, group_tile_kernel
from tflgpu.kernels.mma.m16n8k16 import M16N8K16 as UNIT
from tflgpu.kernels.mma.m16n8k16 import Operands
from tflgpu.kernels.request import Request
from tflgpu.ops.image.window import Window
from tflgpu.target import Target

GROUP_TILES = (
    GroupTile(2, 2, 4, 2),  # 128 x 128
    GroupTile(2, 1, 4, 2),  # 128 x 64
    GroupTile(4, 1, 2, 2),  # 128 x 64
    GroupTile(2, 1, 3, 2),  # 96 x 64
    GroupTile(4, 1, 3, 2),  # 192 x 64
    GroupTile(4, 1, 4, 2),  # 256 x 64
)
STAGES = (3, 2)  # of weights: the first that local memory is large enough for
PATCHES = 2  # of the image, in local memory
BANKS = UNIT.lanes // 2  # of local memory, for vec4s of halves: it has a word for each lane


@dataclass(frozen=True)
class PatchTile(Tile):
    """Tile of a work-group, the vec4s of a slice of its patch, those of the rows, and stages of weights.

    patch_rows: of an image with its border, that the tile sees at most.
    """

    group: GroupTile
    window: Window
    patch_rows: int
    slice_vec4s: int
    stages: int

    @property
    def config(self) -> TileConfig:
        """The parameters by which a tuner names the tile."""
        return (*self.group.config, self.stages)

    @property
    def patch_bytes(self) -> int:
        """The 16 channels of an iteration."""
        return self.slice_vec4s * UNIT.side * HALF_BYTES

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights of one stage: the taps of a row."""
        return self.window.kernel[1] * UNIT.side * self.group.columns * HALF_BYTES

    @property
    def local_bytes(self) -> int:
        """Local memory of a work-group."""
        return PATCHES * self.patch_bytes + self.stages * self.weight_bytes


def candidates(
    operands: Operands, window: Window, src: Storage, dst: Storage, target: Target
) -> list[Candidate[PatchTile, PatchWork]]:
    """Return the tiles of a convolution of ``src`` that gives ``dst``, the fastest first; none if compute units were
    idle."""
    if target.executor != "launch" or not operands.are_halves or src.slices == 1:
        return []
    if min(window.kernel) < 2 or window.stride != (1, 1) or window.dilation != (1, 1):
        return []
    tiles = _tiles(window, src, dst, target)
    found = ranked(tiles, lambda tile: _work(tile, src, dst), target)
    return [candidate for candidate in found if candidate.work.tiles >= target.compute_units]


def _tiles(window: Window, src: Storage, dst: Storage, target: Target) -> Iterator[PatchTile]:
    local_bytes = min(LOCAL_BYTES, target.limits.local_bytes)
    for group in GROUP_TILES:
        rows = _patch_rows(window, src, dst, group.rows)
        left, right = window.padding.left, window.padding.right
        vec4s = rows * (src.width + max(left, right)) + min(left, right)
        vec4s += (_bank(dst) - vec4s) % BANKS
        possible = (PatchTile(group, window, rows, vec4s, stages) for stages in STAGES)
        fitting = [tile for tile in possible if tile.local_bytes <= local_bytes]
        if fitting and group.local_size <= target.limits.work_group_size:
            yield fitting[0]


def _bank(dst: Storage) -> int:
    """Return the bank of a slice's first vec4, counted from that of the slice before."""
    return 4 if dst.plane % 2 == 0 else 2


def _patch_rows(window: Window, src: Storage, dst: Storage, pixels: int) -> int:
    """Rows of images, and of the borders between them, that a tile of ``pixels`` pixels sees at most."""
    first = np.arange(0, dst.geometry.pixels, pixels)
    last = np.minimum(first + pixels, dst.geometry.pixels) - 1
    padded_rows = src.height + max(window.padding.top, window.padding.bottom)
    begin, end = (pixel // dst.plane * padded_rows + pixel % dst.plane // dst.width for pixel in (first, last))
    return int((end - begin).max()) + window.kernel[0]


def _work(tile: PatchTile, src: Storage, dst: Storage) -> PatchWork:
    group, (kh, kw) = tile.group, tile.window.kernel
    read = group.rows * group.column_warps + group.columns * group.row_warps
    return PatchWork(
        tiles=group.tiles(dst),
        iterations=UNIT.blocks(src.slices) * kh,
        macs=kw * UNIT.side * group.rows * group.columns,
        copied_bytes=tile.patch_bytes // kh + tile.weight_bytes,
        read_bytes=kw * UNIT.side * HALF_BYTES * read,
        result_bytes=group.result_bytes(0),
        warps=group.row_warps * group.column_warps,
        resident=group.resident,
    )


@dataclass(frozen=True, kw_only=True)
class PatchParameters(GroupTileParameters, template="mma/gemm/patch", stores_once=True):
    """Parameters of ``templates/mma/gemm/patch.cl.j2``."""

    patch_rows: int
    slice_vec4s: int


def kernel(request: Request, tile: PatchTile, weights: Array, bias: Array | None) -> Kernel:
    """Return the kernel of a convolution with ``weights`` [out, kh, kw, in]."""
    made = partial(PatchParameters, stages=tile.stages, patch_rows=tile.patch_rows, slice_vec4s=tile.slice_vec4s)
    blocks = UNIT.blocks(request.input(0).slices)
    return group_tile_kernel(
        request, made, tile.group, tile.window, weights, bias, input_blocks=blocks, local_bytes=tile.local_bytes
    )
