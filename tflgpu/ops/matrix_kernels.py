"""Convolutions in half precision on matrix units."""

from __future__ import annotations

from itertools import product
from math import prod

from tflgpu.ir import Array
from tflgpu.layout import LANES
from tflgpu.ops.convolution import Convolution
from tflgpu.ops.group_work import SPLITS, WARP, cycles, fits, scratch
from tflgpu.ops.kernel import Argument, Choice, Kernel, Request, tile_count
from tflgpu.ops.packed_weights import SIDE, pack_fragments

# Rows and columns of a warp's part, in blocks.
PARTS = ((1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (2, 4), (4, 2))
# Cycles that one step of one warp takes of the caches for each block of operands.
BLOCK_CYCLES = 8


def suits_matrix_units(request: Request) -> bool:
    """Whether a convolution node can run on matrix units."""
    attributes, src, target = request.node.attributes, request.input(0), request.target
    assert isinstance(attributes, Convolution)
    halves = target.matrix_units and target.storage == src.type == "half" and not src.linear
    return halves and attributes.groups == 1 and request.value(1) is not None


def convolution_mma(request: Request, bias: Array) -> Kernel:
    """bias: of all output channels, and zeros up to a multiple of 4."""
    attributes, src, g, target = request.node.attributes, request.input(0), request.output.geometry, request.target
    assert isinstance(attributes, Convolution)
    window = attributes.window
    input_blocks = tile_count(src.slices, SIDE // LANES)
    steps = prod(window.kernel) * input_blocks
    rows, columns = tile_count(g.pixels, SIDE), tile_count(g.slices, SIDE // LANES)
    warps = target.local_size // WARP

    def tiles(row_blocks: int, column_blocks: int, splits: int) -> int:
        return tile_count(rows, row_blocks * (warps // splits)) * tile_count(columns, column_blocks)

    def cost(choice: Choice) -> float:
        row_blocks, column_blocks, splits = choice
        return cycles(
            target,
            tiles=tiles(row_blocks, column_blocks, splits),
            steps=steps,
            step_cycles=warps * BLOCK_CYCLES * (row_blocks + column_blocks),
            splits=splits,
            quads=2 * row_blocks * column_blocks,
        )

    choices = ((*part, n) for part, n in product(PARTS, SPLITS) if fits(target, n, 2 * prod(part)))
    row_blocks, column_blocks, splits = request.choose(sorted(choices, key=cost))
    packed = pack_fragments(request.constant(1), column_blocks, input_blocks)
    return Kernel(
        "convolution_mma",
        {
            "window": window,
            "row_blocks": row_blocks,
            "column_blocks": column_blocks,
            "splits": splits,
            "steps_per_split": tile_count(steps, splits),
            "input_blocks": input_blocks,
            "column_tiles": tile_count(columns, column_blocks),
            "src": src,
        },
        (request.activation("src", 0), request.weights("weights", packed), Argument("bias", "float", None, bias)),
        tiles=tiles(row_blocks, column_blocks, splits),
        local_size=target.local_size,
        scratch=scratch(target, splits, 2 * row_blocks * column_blocks),
        macs=g.pixels * g.channels * prod(window.kernel) * src.channels,
    )
