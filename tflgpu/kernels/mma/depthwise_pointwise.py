"""A depthwise convolution and the pointwise one after it as one kernel, the second on tensor cores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from tflgpu.graph.layout import LANES, Size, pack
from tflgpu.kernels.candidates import Candidate, Tile, ranked
from tflgpu.kernels.fusing import DepthwisePointwise, inner_epilogue
from tflgpu.kernels.kernel import Argument, Kernel, Parameters, Storage
from tflgpu.kernels.mma import MMA
from tflgpu.kernels.mma.costs import DepthwisePointwiseWork
from tflgpu.kernels.mma.gemm.packed_weights import prefetch_depth
from tflgpu.kernels.mma.m16n8k16 import HALVES, Operands, operands_of_image, type_of_constant
from tflgpu.kernels.mma.m16n8k16 import M16N8K16 as UNIT
from tflgpu.kernels.packing import padded_bias
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import SPLIT_K, fits_local, split_workspace, tile_count
from tflgpu.ops.image.window import Window
from tflgpu.target import ElementType, Target

# Blocks of 16 pixels of a work-group, and of 16 channels of a warp; how many warp tiles lie side by side in a group.
ROW_BLOCKS = (1, 2, 4, 8)
COLUMN_BLOCKS = (1, 2, 4)
COLUMN_TILES = (1, 2, 4, 8, 16)
# Registers of a work-item for the taps that it loads at once. Where its vec4s need more, a loop computes some after
# others.
TAP_REGISTERS = 112
PADDING_VEC4S = 4  # of local memory between slices, so that lanes of a warp read other banks


@dataclass(frozen=True)
class DepthwisePointwiseTile(Tile):
    """Tile of a work-group: blocks of 16 pixels by ``column_tiles`` warp tiles of blocks of 16 channels.

    split_k: how many warps share the input channels of a warp tile.
    """

    row_blocks: int
    column_blocks: int
    column_tiles: int
    split_k: int

    @property
    def warp_tiles(self) -> int:
        """Warp tiles of a work-group."""
        return self.row_blocks * self.column_tiles

    @property
    def group_columns(self) -> int:
        """Blocks of 16 channels of the work-group."""
        return self.column_blocks * self.column_tiles


DepthwisePointwiseCandidate = Candidate[DepthwisePointwiseTile, DepthwisePointwiseWork]


def depthwise_pointwise_candidates(src: Storage, dst: Storage, target: Target) -> list[DepthwisePointwiseCandidate]:
    """Return the tiles that local memory is large enough for, the fastest first. dst: the result of both."""
    operands = operands_of_image(src, target.storage)
    found = ranked(_tiles(src, dst, target), lambda tile: _work(tile, operands, src, dst, target), target)
    return [candidate for candidate in found if fits_local(target, candidate.work.workspace)]


def _tiles(src: Storage, dst: Storage, target: Target) -> Iterator[DepthwisePointwiseTile]:
    warps = target.local_size // UNIT.lanes
    for row_blocks, column_blocks, column_tiles, split_k in product(ROW_BLOCKS, COLUMN_BLOCKS, COLUMN_TILES, SPLIT_K):
        tile = DepthwisePointwiseTile(row_blocks, column_blocks, column_tiles, split_k)
        # Partial sums are added up once, so the warps of all splits have to run at the same time.
        splits_evenly = UNIT.blocks(src.slices) % split_k == 0 and (split_k == 1 or tile.warp_tiles * split_k <= warps)
        every_warp_has_channels = column_blocks * (column_tiles - 1) < UNIT.blocks(dst.slices)
        if splits_evenly and every_warp_has_channels:
            yield tile


def _work(
    tile: DepthwisePointwiseTile, operands: Operands, src: Storage, dst: Storage, target: Target
) -> DepthwisePointwiseWork:
    warps, warp_tiles = target.local_size // UNIT.lanes, tile.warp_tiles * tile.split_k
    row_tiles = tile_count(tile_count(dst.geometry.pixels, UNIT.side), tile.row_blocks)
    sum_vec4s = split_workspace(target, tile.split_k, 2 * tile.column_blocks)
    columns = _columns(tile, operands, src, dst, target)
    vec4s = _depthwise_items(tile, columns, src, target)
    slices = vec4s * _slices_at_once(tile, columns, target)
    between = operands.float4s((UNIT.side * tile.row_blocks + PADDING_VEC4S) * slices)
    k_steps, rounds = UNIT.blocks(src.slices) // tile.split_k, tile_count(warp_tiles, warps)
    return DepthwisePointwiseWork(
        operands=operands,
        tiles=row_tiles * tile_count(UNIT.blocks(dst.slices), tile.group_columns),
        depthwise_items=vec4s,
        columns=columns,
        rounds=rounds,
        k_steps=k_steps,
        batches=tile_count(k_steps, prefetch_depth(operands, k_steps, 1, tile.column_blocks)),
        weight_blocks=rounds * k_steps * min(warps, warp_tiles) * tile.column_blocks,
        column_blocks=tile.column_blocks,
        split_k=tile.split_k,
        sum_vec4s=sum_vec4s,
        workspace=sum_vec4s + between,
    )


def _columns(tile: DepthwisePointwiseTile, operands: Operands, src: Storage, dst: Storage, target: Target) -> int:
    """Pixels side by side that a work-item computes: two where tensor cores multiply halves by diagonal matrices."""
    enough = _slices_at_once(tile, 2, target) <= UNIT.blocks(src.slices) * UNIT.side // LANES
    return 2 if operands.are_halves and dst.width % 2 == 0 and enough else 1


def _slices_at_once(tile: DepthwisePointwiseTile, columns: int, target: Target) -> int:
    """Slices of the depthwise result that the work-items of a group compute at the same time."""
    return target.local_size * columns // (UNIT.side * tile.row_blocks)


def _depthwise_items(tile: DepthwisePointwiseTile, columns: int, src: Storage, target: Target) -> int:
    """Slices of the depthwise result that each work-item computes, those of channels past the last block included."""
    return tile_count(UNIT.blocks(src.slices) * UNIT.side // LANES, _slices_at_once(tile, columns, target))


@dataclass(frozen=True, kw_only=True)
class DepthwisePointwiseParameters(Parameters, template="mma/depthwise_pointwise", stores_once=True):
    """Parameters of ``templates/mma/depthwise_pointwise.cl.j2``."""

    operands: Operands
    tap_type: ElementType
    window: Window
    depthwise_epilogue: Sequence[Mapping[str, object]]
    row_blocks: int
    column_blocks: int
    column_warp_tiles: int
    split_k: int
    sum_vec4s: int
    slices_at_once: int
    slices: Size
    columns: int
    prefetch_depth: int
    input_blocks: Size
    column_tiles: Size
    src: Storage


@MMA.lowering("depthwise_pointwise")
def depthwise_pointwise(request: Request) -> Kernel:
    """Return a depthwise convolution into local memory, and the pointwise one that reads it there."""
    attributes, target = request.attributes(DepthwisePointwise), request.target
    src, dst = request.input(0), request.output
    # The fusion makes this node only where there is a candidate.
    chosen = request.choose_candidate(depthwise_pointwise_candidates(src, dst, target))
    tile, work, input_blocks = chosen.tile, chosen.work, UNIT.blocks(src.slices)
    packed, taps = UNIT.pack_right(request.constant(3), tile.group_columns, input_blocks), pack(request.constant(1))
    operands, tap_type = operands_of_image(src, type_of_constant(request, packed)), type_of_constant(request, taps)
    tap_count, vec4s = prod(attributes.window.kernel), work.depthwise_items
    tap_registers = 2 * (HALVES[operands.image] + HALVES[tap_type]) * tap_count
    most = max(1, TAP_REGISTERS // tap_registers)
    return Kernel(
        DepthwisePointwiseParameters(
            operands=operands,
            tap_type=tap_type,
            window=attributes.window,
            depthwise_epilogue=inner_epilogue(attributes.epilogue),
            row_blocks=tile.row_blocks,
            column_blocks=tile.column_blocks,
            column_warp_tiles=tile.column_tiles,
            split_k=tile.split_k,
            sum_vec4s=work.sum_vec4s,
            slices_at_once=max(n for n in range(1, vec4s + 1) if vec4s % n == 0 and n <= most),
            slices=vec4s * _slices_at_once(tile, work.columns, target),
            columns=work.columns,
            prefetch_depth=prefetch_depth(operands, work.k_steps, 1, tile.column_blocks),
            input_blocks=input_blocks,
            column_tiles=tile_count(UNIT.blocks(dst.slices), tile.group_columns),
            src=src,
        ),
        (
            request.activation("src", 0),
            Argument("depthwise_weights", tap_type, None, taps),
            Argument("depthwise_bias", "float", None, padded_bias(request.constant(2), src.slices * LANES)),
            Argument("weights", operands.weights, None, packed),
            Argument("bias", "float", None, padded_bias(request.constant(4), len(packed) * UNIT.side)),
        ),
        tiles=work.tiles,
        local_size=target.local_size,
        workspace=work.workspace,
        macs=dst.geometry.pixels * src.channels * (tap_count + dst.channels),
    )
