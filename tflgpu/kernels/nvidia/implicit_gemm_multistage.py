"""Convolutions of large images on matrix units: groups that share their operands in local memory.

They are for launches: the persistent executor has one group on each compute unit, and all of one size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod

from tflgpu.graph.ir import Array
from tflgpu.graph.layout import LANES
from tflgpu.kernels.kernel import Argument, Kernel, Storage
from tflgpu.kernels.packing import SIDE, pack_left_fragments, padded_bias
from tflgpu.kernels.request import Request, TileConfig
from tflgpu.kernels.tiling import tile_count
from tflgpu.kernels.work_group import WARP
from tflgpu.ops.image.window import Window
from tflgpu.target import Target

LOCAL_BYTES = 48 << 10  # of a group, on every device with matrix units

BLOCK_CHANNELS = 32

STAGES = {1: 4, 2: 3}  # by the steps of a stage: how many stages a group has, if local memory is large enough

# Float sums of all work-items of a compute unit: half of its registers.
RESIDENT_SUMS = 32 << 10

# Of a compute unit, a cycle: what kernels reach, fitted to the times of 45 convolutions on an H100.
MACS_PER_CYCLE = 640

LOCAL_BYTES_PER_CYCLE = 128

L2_BYTES_PER_CYCLE = 24

STORE_BYTES_PER_CYCLE = 12

# Cycles, as in group_work.py, that a group waits while others can compute: of a tile without any step; until a copy is
# there; of the barrier of a batch.
STAGED_TILE_LATENCY = 4000

COPY_LATENCY = 1000

BARRIER_LATENCY = 100

POINTWISE = 1.3  # times as long as reckoned take windows of one pixel, side by side: L1 cannot serve a copy twice


@dataclass(frozen=True)
class GroupTile:
    """What a group computes: parts of warps, which are blocks of 16 pixels by blocks of 32 channels."""

    row_warps: int
    column_warps: int
    row_blocks: int
    column_blocks: int

    @property
    def rows(self) -> int:
        return self.row_warps * self.row_blocks * SIDE

    @property
    def columns(self) -> int:
        return self.column_warps * self.column_blocks * BLOCK_CHANNELS

    @property
    def local_size(self) -> int:
        return self.row_warps * self.column_warps * WARP

    @property
    def resident(self) -> int:
        """Groups that a compute unit has registers for."""
        return max(1, RESIDENT_SUMS // (self.rows * self.columns))


TILES = (
    GroupTile(4, 2, 4, 2),  # 256 x 128
    GroupTile(2, 2, 4, 2),  # 128 x 128
    GroupTile(2, 4, 4, 1),  # 128 x 128
    GroupTile(4, 2, 4, 1),  # 256 x 64
    GroupTile(2, 2, 4, 1),  # 128 x 64
    GroupTile(2, 2, 2, 2),  # 64 x 128
    GroupTile(2, 2, 2, 1),  # 64 x 64
)


@dataclass(frozen=True)
class MultistageTile:
    """A tile, the steps of one stage of local memory, how many stages there are, and roughly how long all tiles take.

    stage_bytes: of local memory.
    """

    group: GroupTile
    stage_k_steps: int
    stages: int
    stage_bytes: int
    tiles: int
    cycles: float

    @property
    def config(self) -> TileConfig:
        t = self.group
        return t.row_warps, t.column_warps, t.row_blocks, t.column_blocks, self.stage_k_steps, self.stages


def multistage_tiles(window: Window, src: Storage, dst: Storage, target: Target) -> list[MultistageTile]:
    """The parts that suit a convolution of ``src`` that gives ``dst``: none unless there are tiles for all units."""
    if target.executor != "launch" or src.type != "half" or src.slices == 1:
        return []
    return [tile for tile in _tiles(window, src, dst, target) if tile.tiles >= target.compute_units]


def _tiles(window: Window, src: Storage, dst: Storage, target: Target) -> Iterator[MultistageTile]:
    for group, (stage_k_steps, most) in product(TILES, STAGES.items()):
        image_bytes, weight_bytes = (stage_k_steps * SIDE * 2 * side for side in (group.rows, group.columns))
        stages = min(most, LOCAL_BYTES // (image_bytes + weight_bytes))
        batches = prod(window.kernel) * tile_count(src.slices, stage_k_steps * SIDE // LANES)
        tiles = tile_count(dst.geometry.pixels, group.rows) * tile_count(dst.slices * LANES, group.columns)
        waves = tile_count(tiles, target.compute_units)
        # What warps read of local memory, each its own rows and columns, and what copies write there.
        read = image_bytes * group.column_warps + weight_bytes * group.row_warps
        reused = max(1.0, prod(window.kernel) / prod(window.stride))
        busy = max(
            stage_k_steps * group.rows * group.columns * SIDE / MACS_PER_CYCLE,
            (read + image_bytes + weight_bytes) / LOCAL_BYTES_PER_CYCLE,
            (image_bytes / reused + weight_bytes) / L2_BYTES_PER_CYCLE,
        )
        groups = min(group.resident, waves)
        batch = max(busy, COPY_LATENCY / (stages - 1) / groups) + BARRIER_LATENCY / groups
        storing = group.rows * group.columns * 2 / STORE_BYTES_PER_CYCLE
        time = waves * (STAGED_TILE_LATENCY / groups + batches * batch + storing)
        if window.is_pointwise:
            time *= POINTWISE
        yield MultistageTile(group, stage_k_steps, stages, image_bytes + weight_bytes, tiles, time)


def implicit_gemm_multistage(
    request: Request, tile: MultistageTile, window: Window, weights: Array, bias: Array | None
) -> Kernel:
    """weights: [out, kh, kw, in]."""
    src, dst, group = request.input(0), request.output, tile.group
    input_blocks = tile_count(src.slices, tile.stage_k_steps * SIDE // LANES) * tile.stage_k_steps
    packed = pack_left_fragments(weights, group.column_warps * group.column_blocks, input_blocks)
    # Two pixels are 16 bytes that are aligned, and of one image.
    pairs = window.is_pointwise and src.plane % 2 == 0
    return Kernel(
        "nvidia/implicit_gemm_multistage",
        {
            "window": window,
            "row_warps": group.row_warps,
            "column_warps": group.column_warps,
            "row_blocks": group.row_blocks,
            "column_blocks": group.column_blocks,
            "stages": tile.stages,
            "stage_k_steps": tile.stage_k_steps,
            "pixels_at_once": 2 if pairs else 1,
            "input_blocks": input_blocks,
            "column_tiles": tile_count(dst.slices * LANES, group.columns),
            "src": src,
        },
        (
            request.activation("src", 0),
            request.weights("weights", packed),
            Argument("bias", "float", None, padded_bias(bias, len(packed) * BLOCK_CHANNELS)),
        ),
        tiles=tile.tiles,
        local_size=group.local_size,
        workspace=tile.stages * tile.stage_bytes // 16,
        macs=dst.geometry.pixels * dst.channels * prod(window.kernel) * src.channels,
    )
