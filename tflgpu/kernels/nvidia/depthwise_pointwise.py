"""A depthwise convolution and the pointwise one behind it as one kernel, the second on matrix units."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod

from tflgpu.graph.ir import EpilogueOp
from tflgpu.graph.layout import LANES, pack
from tflgpu.kernels.inner_epilogue import inner_epilogue
from tflgpu.kernels.kernel import Argument, Kernel, Storage
from tflgpu.kernels.lowering import lowering
from tflgpu.kernels.nvidia.implicit_gemm import COLUMN_CYCLES, prefetch_depth
from tflgpu.kernels.packing import SIDE, pack_fragments, padded_bias
from tflgpu.kernels.request import Request, TileConfig
from tflgpu.kernels.tiling import tile_count
from tflgpu.kernels.work_group import (
    BATCH_LATENCY,
    LOCAL_VEC4S,
    SPLIT_K,
    TILE_LATENCY,
    WARP,
    reduction_cycles,
    workspace,
)
from tflgpu.ops.image.window import Window
from tflgpu.target import Target


@dataclass(frozen=True)
class DepthwisePointwise:
    """A depthwise convolution with ``steps`` of its own, and the pointwise one that alone reads it.

    Inputs: image NHWC, weights [1, kh, kw, channels] and bias of the depthwise convolution, weights
    [out, 1, 1, channels] and bias of the pointwise one; all but the image are constants. Made by planning, too.

    window: the depthwise one. steps: functions of their own earlier values.
    """

    window: Window
    epilogue: tuple[EpilogueOp, ...]


# Blocks of 16 pixels of a group, and of 16 channels of a warp; how many warps' parts of channels a group has.
ROW_BLOCKS = (1, 2, 4, 8)

COLUMN_BLOCKS = (1, 2, 4)

COLUMN_PARTS = (1, 2, 4, 8, 16)

# Cycles, as in group_work.py, in which each work-item of a group computes one quad of the depthwise result, and that a
# step takes whose operands are in registers and in local memory.
VEC4_CYCLES = 800

LOCAL_K_STEP_LATENCY = 50

# Registers of a work-item for what it loads at once. More quads of it than fit come one after another: code of one quad
# for all of them, because a kernel that runs once waits for its code as for anything else.
DEPTHWISE_REGISTERS = 112

BANK_VEC4S = 4  # of local memory, that are left out between slices


@dataclass(frozen=True)
class DepthwisePointwiseTile:
    """What a group computes: blocks of 16 pixels by parts of blocks of 16 channels, ``splits`` warps sharing inputs.

    slices: of the depthwise result in local memory, with room for those that idle work-items compute. sum_vec4s,
    workspace: float4 elements of local memory for split sums, and in all. cycles: roughly what all takes.
    """

    row_blocks: int
    column_blocks: int
    column_parts: int
    split_k: int
    slices: int
    tiles: int
    sum_vec4s: int
    workspace: int
    cycles: float

    @property
    def config(self) -> TileConfig:
        return self.row_blocks, self.column_blocks, self.column_parts, self.split_k


def depthwise_pointwise_tiles(src: Storage, dst: Storage, target: Target) -> list[DepthwisePointwiseTile]:
    """The parts that local memory is large enough for, the best first. dst: the result of both."""
    fitting = (tile for tile in _tiles(src, dst, target) if tile.workspace <= LOCAL_VEC4S)
    return sorted(fitting, key=lambda tile: tile.cycles)


def _tiles(src: Storage, dst: Storage, target: Target) -> Iterator[DepthwisePointwiseTile]:
    warps, rows = target.local_size // WARP, tile_count(dst.geometry.pixels, SIDE)
    input_blocks, columns = tile_count(src.slices, SIDE // LANES), tile_count(dst.slices, SIDE // LANES)
    for row_blocks, column_blocks, column_parts, split_k in product(ROW_BLOCKS, COLUMN_BLOCKS, COLUMN_PARTS, SPLIT_K):
        warp_tiles = row_blocks * column_parts
        if input_blocks % split_k or (split_k > 1 and warp_tiles * split_k > warps):
            continue  # split sums are added up once
        if column_blocks * (column_parts - 1) >= columns:
            continue  # a part without any channel
        tiles = tile_count(rows, row_blocks) * tile_count(columns, column_blocks * column_parts)
        sum_vec4s = workspace(target, split_k, 2 * column_blocks)
        slices_at_once = target.local_size // (SIDE * row_blocks)
        vec4s = tile_count(input_blocks * SIDE // LANES, slices_at_once)  # of each work-item
        depthwise, slices = vec4s * VEC4_CYCLES, vec4s * slices_at_once
        k_steps, rounds = input_blocks // split_k, tile_count(warp_tiles * split_k, warps)
        depth = prefetch_depth(k_steps, 1, column_blocks)
        loading = rounds * k_steps * min(warps, warp_tiles * split_k) * COLUMN_CYCLES * column_blocks
        if rounds == 1 and k_steps == depth:  # weights are loaded early
            both = max(depthwise, loading) + k_steps * LOCAL_K_STEP_LATENCY
        else:
            both = depthwise + max(rounds * tile_count(k_steps, depth) * BATCH_LATENCY, loading)
        waves = tile_count(tiles, target.compute_units)
        between = tile_count((SIDE * row_blocks + BANK_VEC4S) * slices, 2)  # a quad of halves is half a float4
        time = waves * (TILE_LATENCY + both + reduction_cycles(target, split_k, 2 * column_blocks))
        yield DepthwisePointwiseTile(
            row_blocks,
            column_blocks,
            column_parts,
            split_k,
            slices,
            tiles,
            sum_vec4s,
            sum_vec4s + between,
            time,
        )


@lowering("depthwise_pointwise", "gpu")
def depthwise_pointwise(request: Request) -> Kernel:
    attributes, src, dst, target = request.node.attributes, request.input(0), request.output, request.target
    assert isinstance(attributes, DepthwisePointwise)
    # Planning fuses only what has a part that fits.
    tile = request.choose_candidate(depthwise_pointwise_tiles(src, dst, target))
    input_blocks, columns = tile_count(src.slices, SIDE // LANES), tile_count(dst.slices, SIDE // LANES)
    group_columns = tile.column_blocks * tile.column_parts
    packed = pack_fragments(request.constant(3), group_columns, input_blocks)
    taps = prod(attributes.window.kernel)
    vec4s = tile.slices * SIDE * tile.row_blocks // target.local_size
    return Kernel(
        "nvidia/depthwise_pointwise",
        {
            "window": attributes.window,
            "depthwise_epilogue": inner_epilogue(attributes.epilogue),
            "row_blocks": tile.row_blocks,
            "column_blocks": tile.column_blocks,
            "column_parts": tile.column_parts,
            "split_k": tile.split_k,
            "sum_vec4s": tile.sum_vec4s,
            "vec4s_at_once": vec4s if vec4s * taps * 4 <= DEPTHWISE_REGISTERS else 1,
            "slices": tile.slices,
            "prefetch_depth": prefetch_depth(input_blocks // tile.split_k, 1, tile.column_blocks),
            "input_blocks": input_blocks,
            "column_tiles": tile_count(columns, group_columns),
            "src": src,
        },
        (
            request.activation("src", 0),
            request.weights("depthwise_weights", pack(request.constant(1))),
            Argument("depthwise_bias", "float", None, padded_bias(request.constant(2), src.slices * LANES)),
            request.weights("weights", packed),
            Argument("bias", "float", None, padded_bias(request.constant(4), len(packed) * SIDE)),
        ),
        tiles=tile.tiles,
        local_size=target.local_size,
        workspace=tile.workspace,
        macs=dst.geometry.pixels * src.channels * (taps + dst.channels),
    )
