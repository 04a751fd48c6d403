"""Convolutions as implicit GEMM on tensor cores, for large images: work-groups share their operands in local memory.

Local memory is a ring of stages: while one is multiplied, the next ones are copied. These kernels are for launches: the
persistent executor has one work-group on each compute unit, and one size of work-group for all kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from math import prod

from tflgpu.graph.ir import Array
from tflgpu.graph.layout import LANES, Size
from tflgpu.kernels.candidates import Candidate, Tile, TileConfig, ranked
from tflgpu.kernels.kernel import Argument, Kernel, Storage
from tflgpu.kernels.mma.costs import MultistageWork
from tflgpu.kernels.mma.gemm.skeletons import LocalMemoryParameters
from tflgpu.kernels.mma.m16n8k16 import M16N8K16 as UNIT
from tflgpu.kernels.mma.m16n8k16 import Operands
from tflgpu.kernels.packing import padded_bias
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import tile_count
from tflgpu.ops.image.window import Window
from tflgpu.target import ITEM_BYTES, VEC4_BYTES, Target

# The most that ptxas gives a work-group, also where the driver says that there is more.
LOCAL_BYTES = 48 << 10
HALF_BYTES = ITEM_BYTES["half"]
STAGES = {2: 3}  # by the k-steps of a stage: how many stages there are, if local memory is large enough
# Blocks of a warp tile beside whose sums there are registers for what joins the result.
EARLY_BLOCKS = 4
# Accumulators of all work-items of a compute unit, in floats: half of its registers.
RESIDENT_ACCUMULATORS = 32 << 10


@dataclass(frozen=True)
class GroupTile(Tile):
    """Tile of a work-group: a grid of warps, each a grid of blocks of 16 pixels by 32 output channels."""

    row_warps: int
    column_warps: int
    row_blocks: int
    column_blocks: int

    @property
    def rows(self) -> int:
        """Output pixels."""
        return self.row_warps * self.row_blocks * UNIT.side

    @property
    def columns(self) -> int:
        """Output channels."""
        return self.column_warps * self.column_blocks * UNIT.left_columns

    @property
    def local_size(self) -> int:
        """Work-items of a work-group."""
        return self.row_warps * self.column_warps * UNIT.lanes

    @property
    def resident(self) -> int:
        """Work-groups that a compute unit has registers for."""
        return max(1, RESIDENT_ACCUMULATORS // (self.rows * self.columns))

    def tiles(self, dst: Storage) -> int:
        """Work-groups for a result."""
        return tile_count(dst.geometry.pixels, self.rows) * tile_count(dst.slices * LANES, self.columns)

    def result_bytes(self, joined: int) -> int:
        """Epilogue bytes of a tile: the result, and residuals that are read after the main loop."""
        return self.rows * self.columns * HALF_BYTES * (1 if self.loads_early else 1 + joined)

    @property
    def loads_early(self) -> bool:
        """Whether what joins the result is loaded before the products."""
        return self.row_blocks * self.column_blocks <= EARLY_BLOCKS


GROUP_TILES = (  # of four warps: groups of eight leave registers of a compute unit unused
    GroupTile(2, 2, 4, 2),  # 128 x 128
    GroupTile(2, 2, 4, 1),  # 128 x 64
    GroupTile(4, 1, 2, 2),  # 128 x 64
    GroupTile(2, 2, 2, 2),  # 64 x 128
    GroupTile(2, 2, 2, 1),  # 64 x 64
)


@dataclass(frozen=True)
class MultistageTile(Tile):
    """Tile of a work-group, the k-steps of one stage, and how many stages local memory has."""

    group: GroupTile
    stage_k_steps: int
    stages: int

    @property
    def config(self) -> TileConfig:
        """The parameters by which a tuner names the tile."""
        return (*self.group.config, self.stage_k_steps, self.stages)

    def k_stages(self, src: Storage) -> int:
        """Stages that have all channels of an image."""
        return tile_count(src.slices, self.stage_k_steps * UNIT.side // LANES)

    @property
    def image_bytes(self) -> int:
        """Pixels of one stage."""
        return self.stage_k_steps * UNIT.side * HALF_BYTES * self.group.rows

    @property
    def weight_bytes(self) -> int:
        """Weights of one stage."""
        return self.stage_k_steps * UNIT.side * HALF_BYTES * self.group.columns

    @property
    def local_bytes(self) -> int:
        """All stages."""
        return self.stages * (self.image_bytes + self.weight_bytes)


def candidates(
    operands: Operands, window: Window, src: Storage, dst: Storage, target: Target, joined: int = 0
) -> list[Candidate[MultistageTile, MultistageWork]]:
    """Return the tiles of a convolution of ``src`` that gives ``dst``, the fastest first; none if compute units were
    idle.

    joined: how many tensors of its shape join the result.
    """
    if target.executor != "launch" or not operands.are_halves or src.slices == 1:
        return []
    found = ranked(_tiles(target), lambda tile: _work(tile, window, src, dst, joined), target)
    return [candidate for candidate in found if candidate.work.tiles >= target.compute_units]


def _tiles(target: Target) -> Iterator[MultistageTile]:
    local_bytes = min(LOCAL_BYTES, target.limits.local_bytes)
    for group, (stage_k_steps, most) in product(GROUP_TILES, STAGES.items()):
        stages = min(most, local_bytes // MultistageTile(group, stage_k_steps, 1).local_bytes)
        if stages > 1 and group.local_size <= target.limits.work_group_size:
            yield MultistageTile(group, stage_k_steps, stages)


def _work(tile: MultistageTile, window: Window, src: Storage, dst: Storage, joined: int) -> MultistageWork:
    group, taps = tile.group, prod(window.kernel)
    # Taps of neighbouring pixels overlap: L1 has those that a stride does not skip.
    reused = max(1.0, taps / prod(window.stride))
    return MultistageWork(
        tiles=group.tiles(dst),
        stages_in_all=taps * tile.k_stages(src),
        macs=tile.stage_k_steps * group.rows * group.columns * UNIT.side,
        copied_bytes=tile.image_bytes + tile.weight_bytes,
        read_bytes=tile.image_bytes * group.column_warps + tile.weight_bytes * group.row_warps,
        l2_bytes=tile.image_bytes / reused + tile.weight_bytes,
        result_bytes=group.result_bytes(joined),
        depth=tile.stages,
        resident=group.resident,
        costs=UNIT.costs.ring,
    )


def left_arguments(request: Request, packed: Array, bias: Array | None) -> tuple[Argument, ...]:
    """Return the arguments of a convolution by ``packed`` weights on the left side of products: image, weights,
    bias."""
    return (
        request.activation("src", 0),
        request.weights("weights", packed),
        Argument("bias", "float", None, padded_bias(bias, len(packed) * UNIT.left_columns)),
    )


@dataclass(frozen=True, kw_only=True)
class GroupTileParameters(LocalMemoryParameters):
    """Parameters of loaders whose work-groups compute a :class:`GroupTile`, in iterations of a ring of ``stages``."""

    row_warps: int
    column_warps: int
    row_blocks: int
    window: Window
    stages: int
    input_blocks: Size


def group_tile_kernel(
    request: Request,
    made: Callable[..., GroupTileParameters],
    group: GroupTile,
    window: Window,
    weights: Array,
    bias: Array | None,
    *,
    input_blocks: int,
    local_bytes: int,
) -> Kernel:
    """Return the kernel of a convolution with ``weights`` [out, kh, kw, in] whose work-groups compute a tile each.

    made: its parameters, from those that all loaders have. input_blocks: of 16 channels, to which weights are padded.
    """
    src, dst = request.input(0), request.output
    packed = UNIT.pack_left(weights, group.column_warps * group.column_blocks, input_blocks)
    column_tiles = tile_count(dst.slices * LANES, group.columns)
    return Kernel(
        made(window=window, **asdict(group), input_blocks=input_blocks, column_tiles=column_tiles, src=src),
        left_arguments(request, packed, bias),
        tiles=group.tiles(dst),
        local_size=group.local_size,
        workspace=local_bytes // VEC4_BYTES,
        macs=dst.geometry.pixels * dst.channels * prod(window.kernel) * src.channels,
    )


@dataclass(frozen=True, kw_only=True)
class KTilesParameters(GroupTileParameters, template="mma/gemm/k_tiles", stores_once=True):
    """Parameters of ``templates/mma/gemm/k_tiles.cl.j2``."""

    stage_k_steps: int
    pixels_at_once: int
    loads_early: bool


def kernel(request: Request, tile: MultistageTile, window: Window, weights: Array, bias: Array | None) -> Kernel:
    """Return the kernel of a convolution with ``weights`` [out, kh, kw, in]."""
    src, group = request.input(0), tile.group
    # Two pixels are 16 bytes that are aligned, and of one image.
    pairs = window.is_pointwise and src.plane % 2 == 0
    made = partial(
        KTilesParameters,
        stages=tile.stages,
        stage_k_steps=tile.stage_k_steps,
        pixels_at_once=2 if pairs else 1,
        loads_early=group.loads_early,
    )
    blocks = tile.k_stages(src) * tile.stage_k_steps
    return group_tile_kernel(
        request, made, group, window, weights, bias, input_blocks=blocks, local_bytes=tile.local_bytes
    )
