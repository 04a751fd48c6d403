"""A pointwise convolution and the depthwise one behind it as one kernel, the first on matrix units."""

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
    K_STEP_LATENCY,
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
class PointwiseDepthwise:
    """A pointwise convolution with ``steps`` of its own, and the depthwise one that alone reads it.

    Inputs: image NHWC, weights [channels, 1, 1, in] and bias of the pointwise convolution, weights
    [1, kh, kw, channels] and bias of the depthwise one; all but the image are constants. Lowering never emits it:
    planning makes it for devices where that is faster (``plan/fusion.py``).

    window: the depthwise one. steps: functions of their own earlier values.
    """

    window: Window
    epilogue: tuple[EpilogueOp, ...]


COLUMN_BLOCKS = (1, 2, 3, 4)

ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16)

# Cycles, as in group_work.py, in which each work-item of a group computes one quad from local memory.
DEPTHWISE_CYCLES = 500


@dataclass(frozen=True)
class PointwiseDepthwiseTile:
    """What a group computes: rows of the result by blocks of 16 channels, ``splits`` warps sharing input channels.

    sum_vec4s, workspace: float4 elements of local memory for split sums, and in all. cycles: roughly what all takes.
    """

    rows: int
    column_blocks: int
    split_k: int
    tiles: int
    sum_vec4s: int
    workspace: int
    cycles: float

    @property
    def config(self) -> TileConfig:
        return self.rows, self.column_blocks, self.split_k


def pointwise_depthwise_tiles(
    window: Window, src: Storage, dst: Storage, target: Target
) -> list[PointwiseDepthwiseTile]:
    """The parts that local memory is large enough for, the best first.

    window: the depthwise one, of the pixels of ``src``.
    """
    fitting = (tile for tile in _tiles(window, src, dst, target) if tile.workspace <= LOCAL_VEC4S)
    return sorted(fitting, key=lambda tile: tile.cycles)


def _tiles(window: Window, src: Storage, dst: Storage, target: Target) -> Iterator[PointwiseDepthwiseTile]:
    warps, g = target.local_size // WARP, dst.geometry
    input_blocks, columns = tile_count(src.slices, SIDE // LANES), tile_count(dst.slices, SIDE // LANES)
    for rows, column_blocks, split_k in product(ROWS, COLUMN_BLOCKS, SPLIT_K):
        pixels = ((rows - 1) * window.stride[0] + (window.kernel[0] - 1) * window.dilation[0] + 1) * src.width
        blocks = tile_count(pixels, SIDE)
        if input_blocks % split_k or (split_k > 1 and blocks * split_k > warps):
            continue  # split sums are added up once
        tiles = g.batch * tile_count(g.height, rows) * tile_count(columns, column_blocks)
        sum_vec4s = workspace(target, split_k, 2 * column_blocks)
        k_step_cycles = min(warps, blocks * split_k) * COLUMN_CYCLES * (1 + column_blocks)
        k_steps = tile_count(blocks * split_k, warps) * input_blocks // split_k
        pointwise = k_steps * max(K_STEP_LATENCY, k_step_cycles) + reduction_cycles(target, split_k, 2 * column_blocks)
        vec4s = rows * g.width * SIDE // LANES * column_blocks
        depthwise = tile_count(vec4s, target.local_size) * DEPTHWISE_CYCLES
        waves = tile_count(tiles, target.compute_units)
        between = tile_count(pixels * SIDE // LANES * column_blocks, 2)  # a quad of halves is half a float4
        time = waves * (TILE_LATENCY + pointwise + depthwise)
        yield PointwiseDepthwiseTile(rows, column_blocks, split_k, tiles, sum_vec4s, sum_vec4s + between, time)


@lowering("pointwise_depthwise", "gpu")
def pointwise_depthwise(request: Request) -> Kernel:
    attributes, src, dst, target = request.node.attributes, request.input(0), request.output, request.target
    assert isinstance(attributes, PointwiseDepthwise)
    window = attributes.window
    # Planning fuses only what has a part that fits.
    tile = request.choose_candidate(pointwise_depthwise_tiles(window, src, dst, target))
    input_blocks, columns = tile_count(src.slices, SIDE // LANES), tile_count(dst.slices, SIDE // LANES)
    packed = pack_fragments(request.constant(1), tile.column_blocks, input_blocks)
    return Kernel(
        "nvidia/pointwise_depthwise",
        {
            "window": window,
            "pointwise_epilogue": inner_epilogue(attributes.epilogue),
            "rows": tile.rows,
            "column_blocks": tile.column_blocks,
            "split_k": tile.split_k,
            "sum_vec4s": tile.sum_vec4s,
            "prefetch_depth": prefetch_depth(input_blocks // tile.split_k, 1, tile.column_blocks),
            "input_blocks": input_blocks,
            "column_tiles": tile_count(columns, tile.column_blocks),
            "src": src,
        },
        (
            request.activation("src", 0),
            request.weights("weights", packed),
            Argument("pointwise_bias", "float", None, padded_bias(request.constant(2), len(packed) * SIDE)),
            request.weights("depthwise_weights", pack(request.constant(3))),
            Argument("bias", "float", None, padded_bias(request.constant(4), dst.slices * LANES)),
        ),
        tiles=tile.tiles,
        local_size=target.local_size,
        workspace=tile.workspace,
        macs=dst.channels * (src.geometry.pixels * src.channels + dst.geometry.pixels * prod(window.kernel)),
    )
