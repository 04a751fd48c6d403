"""Attention on tensor cores: scores stay in registers between both products (FlashAttention-2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from tflgpu.graph.layout import LANES, Size
from tflgpu.kernels.attention import Attention, AttentionParameters, Reach, operands_of
from tflgpu.kernels.candidates import Candidate, Tile, ranked
from tflgpu.kernels.demand import Demand, Phase
from tflgpu.kernels.kernel import Kernel
from tflgpu.kernels.mma import LEAST_GROUP, MMA
from tflgpu.kernels.mma.gemm.k_tiles import HALF_BYTES, LOCAL_BYTES
from tflgpu.kernels.mma.m16n8k16 import M16N8K16 as UNIT
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import local_vec4s, tile_count
from tflgpu.target import ITEM_BYTES, VEC4_BYTES, ElementType, Target

PADDING = 4  # floats, or 8 halves, between rows in local memory
STORED_COLUMNS = 64  # of a row, that leave by way of local memory at once
# Numbers that a lane may hold in registers, of those for queries, scores and sums.
HELD_NUMBERS = 200


@dataclass(frozen=True)
class AttentionTile(Tile):
    """Tile that a work-group computes at once.

    Attributes:
        row_warps: Warps with rows of their own.
        key_warps: Warps that share the keys of the same rows.
        row_blocks: Blocks of 16 rows of a warp.
        key_blocks: Blocks of 16 keys of a warp in an iteration.
        stages: How many iterations local memory has keys and values of: 1 or 2.
    """

    row_warps: int
    key_warps: int
    row_blocks: int
    key_blocks: int
    stages: int = 2

    @property
    def local_size(self) -> int:
        """Work-items of a work-group."""
        return self.row_warps * self.key_warps * UNIT.lanes

    @property
    def rows(self) -> int:
        """Rows of a head."""
        return self.row_warps * self.row_blocks * UNIT.side

    @property
    def keys(self) -> int:
        """Keys of an iteration."""
        return self.key_warps * self.key_blocks * UNIT.side

    def numbers(self, depth: int, value_depth: int) -> int:
        """Count the registers of a lane for queries, scores and sums."""
        rows, halves = self.row_blocks * UNIT.side, self.row_blocks * UNIT.side * depth // 2
        return (halves + rows * (self.key_blocks * UNIT.side + value_depth)) // UNIT.lanes

    def local_bytes(self, depth: int, value_depth: int) -> int:
        """Local memory for keys and values, and afterwards for results."""
        staged = self.stages * self.keys * HALF_BYTES * (depth + value_depth + 4 * PADDING)
        return max(staged, self.result_bytes(value_depth))

    def result_bytes(self, value_depth: int) -> int:
        """Local memory for the sums of all warps, and for the greatest score and the total of each row."""
        rows, columns = self.row_warps * UNIT.side, min(value_depth, STORED_COLUMNS) + PADDING
        totals = 2 * self.row_blocks if self.key_warps > 1 else 0
        return self.key_warps * rows * (columns + totals) * ITEM_BYTES["float"]


@dataclass(frozen=True)
class AttentionWork:
    """Work of a work-group for a tile, in iterations over blocks of keys.

    Attributes:
        tiles: Number of tiles.
        iterations: Number of iterations of a tile.
        macs: Multiply-adds of both products in an iteration.
        scores: Number of scores in an iteration.
        read_bytes: Bytes that warps read from local memory in an iteration.
        copied_bytes: Bytes that are copied to local memory in an iteration.
        result_bytes: Bytes that the sums of all warps take.
        resident: Work-groups of a compute unit.
        stages: How many iterations local memory has operands of.
    """

    tiles: int
    iterations: int
    macs: int
    scores: int
    read_bytes: int
    copied_bytes: int
    result_bytes: int
    resident: int
    stages: int

    def demand(self, target: Target) -> Demand:
        """Return the demand. Copies overlap with products, scores do not: a warp needs its own before it goes on."""
        costs, attention = UNIT.costs.ring, UNIT.costs.attention
        busy = (
            self.macs / costs.macs + self.scores * attention.score_cycles,
            (self.read_bytes + self.copied_bytes) / costs.local_bytes,
            self.copied_bytes / costs.l2_bytes,
        )
        chain = attention.chain_latency + costs.barrier_latency
        if self.stages == 2:
            loop = Phase(self.iterations, busy, costs.copy_latency, chain)
        else:
            loop = Phase(self.iterations, busy, barrier=chain + costs.copy_latency + costs.barrier_latency)
        storing = Phase(1, (2 * self.result_bytes / costs.local_bytes,))
        return Demand(self.tiles, (loop, storing), costs.tile_latency, self.resident)


def _depths(attention: Attention) -> tuple[int, int]:
    """Elements of a key and of a value, in whole blocks."""
    key, value = (tile_count(n, UNIT.side) * UNIT.side for n in (attention.depth, attention.value_depth))
    return key, value


def candidates(attention: Attention, target: Target) -> list[Candidate[AttentionTile, AttentionWork]]:
    """Return the tiles of an attention for which there are registers and local memory, the fastest first."""
    depth, value_depth = _depths(attention)

    def work(tile: AttentionTile) -> AttentionWork:
        operand_bytes = HALF_BYTES * (depth + value_depth)
        return AttentionWork(
            tiles=attention.heads * tile_count(attention.rows, tile.rows) * attention.parts,
            iterations=tile_count(tile_count(attention.keys, tile.keys), attention.parts),
            macs=tile.rows * tile.keys * (depth + value_depth),
            scores=tile.rows * tile.keys,
            read_bytes=tile.row_warps * tile.keys * operand_bytes,
            copied_bytes=tile.keys * operand_bytes,
            result_bytes=tile.row_blocks * tile.result_bytes(value_depth),
            resident=2 if target.executor == "launch" else 1,
            stages=tile.stages,
        )

    return ranked(_tiles(attention, target), work, target)


def _tiles(attention: Attention, target: Target) -> Iterator[AttentionTile]:
    depths = _depths(attention)
    # A persistent kernel has one size of work-group for all functions.
    sizes = (LEAST_GROUP, 2 * LEAST_GROUP) if target.executor == "launch" else (target.local_size,)
    local_bytes = min(LOCAL_BYTES, VEC4_BYTES * local_vec4s(target))
    shapes = product(sizes, (8, 4, 2, 1), (2, 1), (4, 2, 1), (2, 1))
    for size, row_warps, row_blocks, key_blocks, stages in shapes:
        if size // UNIT.lanes % row_warps or size > target.limits.work_group_size:
            continue
        tile = AttentionTile(row_warps, size // UNIT.lanes // row_warps, row_blocks, key_blocks, stages)
        fits = tile.keys <= size and tile.local_bytes(*depths) <= local_bytes
        blocks = tile_count(attention.keys, tile.keys)
        # Every part has keys.
        fits = fits and (attention.parts - 1) * tile_count(blocks, attention.parts) < blocks
        if fits and tile.numbers(*depths) <= HELD_NUMBERS:
            yield tile


def has_tile(attention: Attention, types: Sequence[ElementType], target: Target) -> bool:
    """Whether all three operands are halves, and the device has room for a tile."""
    return set(types) == {"half"} and next(_tiles(attention, target), None) is not None


def suits(request: Request) -> bool:
    """Whether tiles of warps compute the attention of a request, see :func:`has_tile`."""
    return has_tile(request.attributes(Attention), [request.input(n).type for n in range(3)], request.target)


def _is_wide(reach: Reach, elements: int) -> bool:
    """Whether the vec4s of a row lie side by side, aligned in pairs."""
    places = (reach.start, reach.row, *(digit.stride for digit in reach.digits), elements // LANES)
    return reach.slice == 1 and all(place % 2 == 0 for place in places)


@dataclass(frozen=True, kw_only=True)
class AttentionTileParameters(AttentionParameters, template="mma/attention_tiles", stores_once=True):
    """Parameters of ``templates/mma/attention_tiles.cl.j2``."""

    row_warps: int
    key_warps: int
    row_blocks: int
    key_blocks: int
    stages: int
    chunks: Size
    wide_keys: bool
    wide_values: bool


@MMA.lowering("attention", when=suits)
def attention_in_tiles(request: Request) -> Kernel:
    """Attention whose warps multiply blocks of rows and keys."""
    attention, target = request.attributes(Attention), request.target
    chosen = request.choose_candidate(candidates(attention, target))
    tile = chosen.tile
    operands = operands_of(request, attention)
    return Kernel(
        AttentionTileParameters(
            attention=attention,
            row_warps=tile.row_warps,
            key_warps=tile.key_warps,
            row_blocks=tile.row_blocks,
            key_blocks=tile.key_blocks,
            stages=tile.stages,
            chunks=tile_count(attention.rows, tile.rows),
            wide_keys=_is_wide(attention.key, attention.depth),
            wide_values=_is_wide(attention.value, attention.value_depth),
            **operands,
        ),
        tuple(operands.values()),
        tiles=chosen.work.tiles,
        local_size=tile.local_size,
        workspace=tile_count(tile.local_bytes(*_depths(attention)), VEC4_BYTES),
        macs=attention.macs,
    )
