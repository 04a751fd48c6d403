"""A pointwise convolution and the depthwise one behind it as one kernel, the first on matrix units."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod

from tflgpu.graph.ir import Step
from tflgpu.graph.layout import LANES, pack
from tflgpu.kernels.inner_epilogue import inner_epilogue
from tflgpu.kernels.kernel import Argument, Kernel, Storage
from tflgpu.kernels.lowering import variant
from tflgpu.kernels.nvidia.implicit_gemm import COLUMN_CYCLES, step_depth
from tflgpu.kernels.packing import SIDE, pack_fragments, padded_bias
from tflgpu.kernels.request import Choice, Request
from tflgpu.kernels.tiling import tile_count
from tflgpu.kernels.work_group import LOCAL_QUADS, SPLITS, STEP_LATENCY, TILE_LATENCY, WARP, reduction_cycles, scratch
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
    steps: tuple[Step, ...]


COLUMN_BLOCKS = (1, 2, 3, 4)

ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16)

# Cycles, as in group_work.py, in which each work-item of a group computes one quad from local memory.
DEPTHWISE_CYCLES = 500


@dataclass(frozen=True)
class FusedPart:
    """What a group computes: rows of the result by blocks of 16 channels, ``splits`` warps sharing input channels.

    sum_quads, scratch: float4 elements of local memory for split sums, and in all. cycles: roughly what all takes.
    """

    rows: int
    column_blocks: int
    splits: int
    tiles: int
    sum_quads: int
    scratch: int
    cycles: float

    @property
    def choice(self) -> Choice:
        return self.rows, self.column_blocks, self.splits


def fused_parts(window: Window, src: Storage, dst: Storage, target: Target) -> list[FusedPart]:
    """The parts that local memory is large enough for, the best first.

    window: the depthwise one, of the pixels of ``src``.
    """
    fitting = (part for part in _parts(window, src, dst, target) if part.scratch <= LOCAL_QUADS)
    return sorted(fitting, key=lambda part: part.cycles)


def _parts(window: Window, src: Storage, dst: Storage, target: Target) -> Iterator[FusedPart]:
    warps, g = target.local_size // WARP, dst.geometry
    input_blocks, columns = tile_count(src.slices, SIDE // LANES), tile_count(dst.slices, SIDE // LANES)
    for rows, column_blocks, splits in product(ROWS, COLUMN_BLOCKS, SPLITS):
        pixels = ((rows - 1) * window.stride[0] + (window.kernel[0] - 1) * window.dilation[0] + 1) * src.width
        blocks = tile_count(pixels, SIDE)
        if input_blocks % splits or (splits > 1 and blocks * splits > warps):
            continue  # split sums are added up once
        tiles = g.batch * tile_count(g.height, rows) * tile_count(columns, column_blocks)
        sum_quads = scratch(target, splits, 2 * column_blocks)
        step_cycles = min(warps, blocks * splits) * COLUMN_CYCLES * (1 + column_blocks)
        steps = tile_count(blocks * splits, warps) * input_blocks // splits
        pointwise = steps * max(STEP_LATENCY, step_cycles) + reduction_cycles(target, splits, 2 * column_blocks)
        quads = rows * g.width * SIDE // LANES * column_blocks
        depthwise = tile_count(quads, target.local_size) * DEPTHWISE_CYCLES
        waves = tile_count(tiles, target.compute_units)
        between = tile_count(pixels * SIDE // LANES * column_blocks, 2)  # a quad of halves is half a float4
        time = waves * (TILE_LATENCY + pointwise + depthwise)
        yield FusedPart(rows, column_blocks, splits, tiles, sum_quads, sum_quads + between, time)


@variant("pointwise_depthwise", "gpu")
def pointwise_depthwise_mma(request: Request) -> Kernel:
    attributes, src, dst, target = request.node.attributes, request.input(0), request.output, request.target
    assert isinstance(attributes, PointwiseDepthwise)
    window = attributes.window
    # Planning fuses only what has a part that fits.
    part = request.choose_part(fused_parts(window, src, dst, target))
    input_blocks, columns = tile_count(src.slices, SIDE // LANES), tile_count(dst.slices, SIDE // LANES)
    packed = pack_fragments(request.constant(1), part.column_blocks, input_blocks)
    return Kernel(
        "nvidia/pointwise_depthwise",
        {
            "window": window,
            "pointwise_steps": inner_epilogue(attributes.steps),
            "rows": part.rows,
            "column_blocks": part.column_blocks,
            "splits": part.splits,
            "sum_quads": part.sum_quads,
            "depth": step_depth(input_blocks // part.splits, 1, part.column_blocks),
            "input_blocks": input_blocks,
            "column_tiles": tile_count(columns, part.column_blocks),
            "src": src,
        },
        (
            request.activation("src", 0),
            request.weights("weights", packed),
            Argument("pointwise_bias", "float", None, padded_bias(request.constant(2), len(packed) * SIDE)),
            request.weights("depthwise_weights", pack(request.constant(3))),
            Argument("bias", "float", None, padded_bias(request.constant(4), dst.slices * LANES)),
        ),
        tiles=part.tiles,
        local_size=target.local_size,
        scratch=part.scratch,
        macs=dst.channels * (src.geometry.pixels * src.channels + dst.geometry.pixels * prod(window.kernel)),
    )
