"""Products of many rows in row-major order on tensor cores: rows in local memory, weights in registers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

from tflgpu.graph.ir import Array
from tflgpu.kernels.candidates import Candidate, TileConfig, ranked
from tflgpu.kernels.kernel import Kernel, Storage
from tflgpu.kernels.mma.costs import MultistageWork
from tflgpu.kernels.mma.gemm.k_tiles import (
    LOCAL_BYTES,
    GroupTile,
    GroupTileParameters,
    MultistageTile,
    group_tile_kernel,
)
from tflgpu.kernels.mma.m16n8k16 import M16N8K16 as UNIT
from tflgpu.kernels.mma.m16n8k16 import Operands
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import local_vec4s
from tflgpu.ops.image.window import POINTWISE, Window
from tflgpu.target import VEC4_BYTES, Target
from tflgpu.target.kernel_numbers import kernel_numbers

# Warps of a work-group one below the other, and blocks of 16 rows by 32 columns of each.
ROW_WARPS = (1, 2)
BLOCKS = ((1, 1), (2, 1), (3, 1), (4, 1), (1, 2), (2, 2), (3, 2))


@dataclass(frozen=True, kw_only=True)
class RingNumbers:
    """Numbers of the ring through which rows pass.

    Attributes:
        stage_k_steps: K-steps of an iteration.
        most_stages: Stages of the ring.
        held_registers: Registers of a lane for weights, pixels and sums.
    """

    stage_k_steps: int
    most_stages: int
    held_registers: int


NUMBERS = kernel_numbers("mma/gemm/row_major", RingNumbers)


SETS = (2, 4)


@dataclass(frozen=True)
class RowMajorTile(MultistageTile):
    """Tile of a work-group, of which local memory has the rows only.

    Attributes:
        sets: Iterations that registers have weights of.
    """

    sets: int

    @property
    def config(self) -> TileConfig:
        """The parameters by which a tuner names the tile."""
        return (*super().config, self.sets)

    @property
    def local_bytes(self) -> int:
        """Rows of all stages."""
        return self.stages * self.image_bytes

    @property
    def registers(self) -> int:
        """Registers of a lane: sums, weights of all sets and rows of an iteration."""
        rows, columns = self.group.row_blocks, self.group.column_blocks
        return 16 * rows * columns + self.stage_k_steps * (8 * columns * self.sets + 4 * rows)


def candidates(
    operands: Operands, window: Window, src: Storage, dst: Storage, target: Target, joined: int = 0
) -> list[Candidate[RowMajorTile, MultistageWork]]:
    """Return the tiles of a product, the fastest first; none unless rows of halves lie one after the other.

    Args:
        operands: Of the product.
        window: Of the convolution.
        src: The rows.
        dst: The result.
        target: The device.
        joined: How many tensors of its shape join the result.
    """
    # Copies are of 16 bytes, two slices.
    is_row_major = window.is_pointwise and src.plane == 1 and src.slices % 2 == 0
    if target.executor == "launch" or not operands.are_halves or not is_row_major:
        return []

    def work(tile: RowMajorTile) -> MultistageWork:
        group = tile.group
        return MultistageWork(
            tiles=group.tiles(dst),
            stages_in_all=tile.k_stages(src),
            macs=tile.stage_k_steps * group.rows * group.columns * UNIT.side,
            copied_bytes=tile.image_bytes,
            read_bytes=tile.image_bytes * group.column_warps + tile.weight_bytes * group.row_warps,
            l2_bytes=tile.image_bytes + tile.weight_bytes,
            result_bytes=group.result_bytes(joined),
            depth=min(tile.stages, tile.sets),
            resident=1,
            costs=UNIT.costs.row_ring,
        )

    return ranked(_tiles(target), work, target)


def _tiles(target: Target) -> Iterator[RowMajorTile]:
    local_bytes = min(LOCAL_BYTES, VEC4_BYTES * local_vec4s(target))
    warps = target.local_size // UNIT.lanes
    for row_warps, blocks, sets in product(ROW_WARPS, BLOCKS, SETS):
        group = GroupTile(row_warps, warps // row_warps, *blocks)
        tile = RowMajorTile(group, NUMBERS.stage_k_steps, 1, sets)
        stages = min(NUMBERS.most_stages, local_bytes // tile.local_bytes)
        tile = replace(tile, stages=stages)
        if warps % row_warps == 0 and stages > 1 and tile.registers <= NUMBERS.held_registers:
            yield tile


@dataclass(frozen=True, kw_only=True)
class RowMajorParameters(GroupTileParameters, template="mma/gemm/row_major", stores_once=True):
    """Parameters of ``templates/mma/gemm/row_major.cl.j2``."""

    stage_k_steps: int
    sets: int
    loads_early: bool


def kernel(request: Request, tile: RowMajorTile, weights: Array, bias: Array | None) -> Kernel:
    """Return the kernel of a product by ``weights`` [out, 1, 1, in]."""
    made = partial(
        RowMajorParameters,
        stages=tile.stages,
        stage_k_steps=tile.stage_k_steps,
        sets=tile.sets,
        loads_early=tile.group.loads_early,
    )
    blocks = tile.k_stages(request.input(0)) * tile.stage_k_steps
    return group_tile_kernel(
        request, made, tile.group, POINTWISE, weights, bias, input_blocks=blocks, local_bytes=tile.local_bytes
    )
