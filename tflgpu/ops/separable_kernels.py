"""A depthwise convolution and the pointwise one behind it as one kernel on matrix units."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np

from tflgpu.ir import Array, Value
from tflgpu.layout import LANES
from tflgpu.ops.convolution import SeparableConvolution
from tflgpu.ops.group_work import LOCAL_QUADS, SPLITS, TILE_LATENCY, WARP, reduction_cycles, scratch
from tflgpu.ops.kernel import Argument, Kernel, Request, Storage, tile_count, variant
from tflgpu.ops.matrix_kernels import BLOCK_CYCLES
from tflgpu.ops.packed_weights import SIDE, pack_diagonals, pack_fragments
from tflgpu.ops.window import Window
from tflgpu.target import Target

# Output pixels of a block of 16 rows.
BLOCK_WIDTH, BLOCK_HEIGHT = 8, 2
ROW_BLOCKS, COLUMN_BLOCKS = (1, 2), (1, 2, 4)
# Cycles, as in group_work.py: of a warp's depthwise block from first load to last store, of one load of a quad by a warp
# as the caches see it, of a pointwise step whose operands are at hand or nearly so.
_DEPTHWISE_LATENCY = 700
_LOAD_CYCLES = 4
_STEP_LATENCY = 100


@dataclass(frozen=True)
class SeparablePart:
    """How a group shares its work, see ``templates/separable_convolution_mma.cl.j2``; and roughly what all takes."""

    row_blocks: int
    column_blocks: int
    row_parts: int
    column_parts: int
    splits: int
    tiles: int
    cycles: float
    scratch: int


def separable_part(window: Window, src: Storage, dst: Storage, target: Target) -> SeparablePart | None:
    """The best way for a group to share its work; None if local memory is too small for any.

    window: the depthwise one, from ``src`` to the pixels of ``dst``.
    """
    fitting = (part for part in _parts(window, src, dst, target) if part.scratch <= LOCAL_QUADS)
    return min(fitting, key=lambda part: part.cycles, default=None)


def _parts(window: Window, src: Storage, dst: Storage, target: Target) -> Iterator[SeparablePart]:
    warps, g = target.local_size // WARP, dst.geometry
    input_blocks, columns = tile_count(src.slices, SIDE // LANES), tile_count(dst.slices, SIDE // LANES)
    for row_blocks, column_blocks, splits, row_parts in product(ROW_BLOCKS, COLUMN_BLOCKS, SPLITS, SPLITS):
        column_parts = warps // (splits * row_parts)
        if splits * row_parts * column_parts != warps:
            continue
        parts = g.batch * tile_count(g.width, BLOCK_WIDTH) * tile_count(g.height, BLOCK_HEIGHT * row_blocks)
        tiles = tile_count(parts, row_parts) * tile_count(columns, column_blocks * column_parts)
        blocks = row_parts * input_blocks
        sums = scratch(target, splits, BLOCK_HEIGHT * row_blocks * column_blocks)
        taps = prod(window.kernel)
        loads = len(image_rows(window, row_blocks)) * window.kernel[1] + taps / 2
        depthwise = max(
            tile_count(blocks, warps) * _DEPTHWISE_LATENCY,
            blocks * _LOAD_CYCLES * loads,
        )
        step_cycles = warps * BLOCK_CYCLES * (row_blocks / 2 + column_blocks)
        pointwise = tile_count(input_blocks, splits) * max(_STEP_LATENCY, step_cycles)
        reduction = reduction_cycles(target, splits, BLOCK_HEIGHT * row_blocks * column_blocks)
        waves = tile_count(tiles, target.compute_units)
        time = waves * (TILE_LATENCY + depthwise + pointwise + reduction)
        operands = blocks * row_blocks * WARP
        yield SeparablePart(
            row_blocks, column_blocks, row_parts, column_parts, splits, tiles, time, max(operands, sums)
        )


def image_rows(window: Window, row_blocks: int) -> set[int]:
    """The rows of the image that a lane's rows of output need, from the first tap of the first one on."""
    outputs = range(BLOCK_HEIGHT * row_blocks)
    return {r * window.stride[0] + ky * window.dilation[0] for r, ky in product(outputs, range(window.kernel[0]))}


@variant("separable_convolution", "gpu")
def separable_convolution_mma(request: Request) -> Kernel:
    attributes, src, dst, target = request.node.attributes, request.input(0), request.output, request.target
    assert isinstance(attributes, SeparableConvolution)
    window = attributes.window
    part = separable_part(window, src, dst, target)
    assert part is not None, "planning fuses only what fits"
    input_blocks, columns = tile_count(src.slices, SIDE // LANES), tile_count(dst.slices, SIDE // LANES)
    group_columns = part.column_blocks * part.column_parts
    pixels = dst.geometry.pixels
    return Kernel(
        "separable_convolution_mma",
        {
            "window": window,
            "depthwise_steps": [
                {
                    "index": k + 1,
                    "function": step.function,
                    "operands": [{"value": o.index} for o in step.operands if isinstance(o, Value)],
                    "parameters": list(step.parameters),
                    "type": "float",
                }
                for k, step in enumerate(attributes.steps)
            ],
            "row_blocks": part.row_blocks,
            "column_blocks": part.column_blocks,
            "row_parts": part.row_parts,
            "column_parts": part.column_parts,
            "splits": part.splits,
            "steps_per_split": tile_count(input_blocks, part.splits),
            "input_blocks": input_blocks,
            "column_tiles": tile_count(columns, group_columns),
            "columns_remain": dst.slices % (group_columns * SIDE // LANES) != 0,
            "src": src,
        },
        (
            request.activation("src", 0),
            request.weights("depthwise_weights", pack_diagonals(request.constant(1), input_blocks)),
            Argument("depthwise_bias", "float", None, _padded(request.constant(2), input_blocks * SIDE)),
            request.weights("weights", pack_fragments(request.constant(3), group_columns, input_blocks)),
            Argument("bias", "float", None, _padded(request.constant(4), dst.slices * LANES)),
        ),
        tiles=part.tiles,
        local_size=target.local_size,
        scratch=part.scratch,
        macs=pixels * src.channels * (prod(window.kernel) + dst.channels),
    )


def _padded(bias: Array, size: int) -> Array:
    values = np.zeros(size, np.float32)
    values[: bias.size] = bias.reshape(-1)
    return values
