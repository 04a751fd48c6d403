"""A depthwise convolution and the pointwise one behind it as one kernel, the second on matrix units."""

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
from tflgpu.kernels.work_group import BATCH_LATENCY, LOCAL_QUADS, SPLITS, TILE_LATENCY, WARP, reduction_cycles, scratch
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
    steps: tuple[Step, ...]


# Blocks of 16 pixels of a group, and of 16 channels of a warp; how many warps' parts of channels a group has.
ROW_BLOCKS = (1, 2, 4, 8)

COLUMN_BLOCKS = (1, 2, 4)

COLUMN_PARTS = (1, 2, 4, 8, 16)

# Cycles, as in group_work.py, in which each work-item of a group computes one quad of the depthwise result, and that a
# step takes whose operands are in registers and in local memory.
QUAD_CYCLES = 800

LOCAL_STEP_LATENCY = 50

# Registers of a work-item for what it loads at once. More quads of it than fit come one after another: code of one quad
# for all of them, because a kernel that runs once waits for its code as for anything else.
DEPTHWISE_REGISTERS = 112

BANK_QUADS = 4  # of local memory, that are left out between slices


@dataclass(frozen=True)
class SeparablePart:
    """What a group computes: blocks of 16 pixels by parts of blocks of 16 channels, ``splits`` warps sharing inputs.

    slices: of the depthwise result in local memory, with room for those that idle work-items compute. sum_quads,
    scratch: float4 elements of local memory for split sums, and in all. cycles: roughly what all takes.
    """

    row_blocks: int
    column_blocks: int
    column_parts: int
    splits: int
    slices: int
    tiles: int
    sum_quads: int
    scratch: int
    cycles: float

    @property
    def choice(self) -> Choice:
        return self.row_blocks, self.column_blocks, self.column_parts, self.splits


def separable_parts(src: Storage, dst: Storage, target: Target) -> list[SeparablePart]:
    """The parts that local memory is large enough for, the best first. dst: the result of both."""
    fitting = (part for part in _parts(src, dst, target) if part.scratch <= LOCAL_QUADS)
    return sorted(fitting, key=lambda part: part.cycles)


def _parts(src: Storage, dst: Storage, target: Target) -> Iterator[SeparablePart]:
    warps, rows = target.local_size // WARP, tile_count(dst.geometry.pixels, SIDE)
    input_blocks, columns = tile_count(src.slices, SIDE // LANES), tile_count(dst.slices, SIDE // LANES)
    for row_blocks, column_blocks, column_parts, splits in product(ROW_BLOCKS, COLUMN_BLOCKS, COLUMN_PARTS, SPLITS):
        parts = row_blocks * column_parts
        if input_blocks % splits or (splits > 1 and parts * splits > warps):
            continue  # split sums are added up once
        if column_blocks * (column_parts - 1) >= columns:
            continue  # a part without any channel
        tiles = tile_count(rows, row_blocks) * tile_count(columns, column_blocks * column_parts)
        sum_quads = scratch(target, splits, 2 * column_blocks)
        slices_at_once = target.local_size // (SIDE * row_blocks)
        quads = tile_count(input_blocks * SIDE // LANES, slices_at_once)  # of each work-item
        depthwise, slices = quads * QUAD_CYCLES, quads * slices_at_once
        steps, rounds = input_blocks // splits, tile_count(parts * splits, warps)
        depth = step_depth(steps, 1, column_blocks)
        loading = rounds * steps * min(warps, parts * splits) * COLUMN_CYCLES * column_blocks
        if rounds == 1 and steps == depth:  # weights are loaded early
            both = max(depthwise, loading) + steps * LOCAL_STEP_LATENCY
        else:
            both = depthwise + max(rounds * tile_count(steps, depth) * BATCH_LATENCY, loading)
        waves = tile_count(tiles, target.compute_units)
        between = tile_count((SIDE * row_blocks + BANK_QUADS) * slices, 2)  # a quad of halves is half a float4
        time = waves * (TILE_LATENCY + both + reduction_cycles(target, splits, 2 * column_blocks))
        yield SeparablePart(
            row_blocks,
            column_blocks,
            column_parts,
            splits,
            slices,
            tiles,
            sum_quads,
            sum_quads + between,
            time,
        )


@variant("depthwise_pointwise", "gpu")
def depthwise_pointwise_mma(request: Request) -> Kernel:
    attributes, src, dst, target = request.node.attributes, request.input(0), request.output, request.target
    assert isinstance(attributes, DepthwisePointwise)
    # Planning fuses only what has a part that fits.
    part = request.choose_part(separable_parts(src, dst, target))
    input_blocks, columns = tile_count(src.slices, SIDE // LANES), tile_count(dst.slices, SIDE // LANES)
    group_columns = part.column_blocks * part.column_parts
    packed = pack_fragments(request.constant(3), group_columns, input_blocks)
    taps = prod(attributes.window.kernel)
    quads = part.slices * SIDE * part.row_blocks // target.local_size
    return Kernel(
        "nvidia/depthwise_pointwise",
        {
            "window": attributes.window,
            "depthwise_steps": inner_epilogue(attributes.steps),
            "row_blocks": part.row_blocks,
            "column_blocks": part.column_blocks,
            "column_parts": part.column_parts,
            "splits": part.splits,
            "sum_quads": part.sum_quads,
            "quads_at_once": quads if quads * taps * 4 <= DEPTHWISE_REGISTERS else 1,
            "slices": part.slices,
            "depth": step_depth(input_blocks // part.splits, 1, part.column_blocks),
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
        tiles=part.tiles,
        local_size=target.local_size,
        scratch=part.scratch,
        macs=dst.geometry.pixels * src.channels * (taps + dst.channels),
    )
