"""The tensor core of NVIDIA's GPUs from compute capability 8.0 on: its shape, and how its operands lie in registers.

The layout of fragments is that of ``mma.sync.aligned.m16n8k16`` in the PTX ISA, "Matrix Fragments for mma.m16n8k16".
"""

from __future__ import annotations

import numpy as np

from tflgpu.graph.ir import Array
from tflgpu.kernels.matrix_unit import MatrixUnit
from tflgpu.kernels.packing import reordered
from tflgpu.kernels.tiling import tile_count

SIDE = 16  # rows, columns and K of a block: two products of 16 x 8 x 16

WARP = 32  # work-items that compute a product together


def pack_fragments(weights: Array, column_blocks: int, input_blocks: int) -> Array:
    """[out, kh, kw, in] -> [block of 16 outputs][kh][kw][block of 16 inputs][lane][8], as tensor cores take them.

    The number of output blocks is a multiple of ``column_blocks``; channels that ``weights`` does not have are zero.
    A block of 16 x 16 weights is the right side of two products of mma.sync.m16n8k16. Lane 4g + t holds, for product j,
    column g of the inner indices 2t, 2t + 1, 2t + 8 and 2t + 9. Those are the input channels 4t to 4t + 3 here, and
    the column is output channel 4 * (g // 2) + 2j + g % 2, so that operands and sums are vec4s of PHWC4.
    """
    out, kh, kw, depth = weights.shape
    blocks = tile_count(out, SIDE * column_blocks) * column_blocks
    padded = np.zeros((blocks * SIDE, kh, kw, input_blocks * SIDE), np.float32)
    padded[:out, ..., :depth] = weights
    # out = 16 block + 4 (g // 2) + 2 j + g % 2; in = 16 step + 4 t + i
    axes = padded.reshape(blocks, 4, 2, 2, kh, kw, input_blocks, 4, 4)
    return reordered(axes.transpose(0, 4, 5, 6, 1, 3, 7, 2, 8))


def pack_left_fragments(weights: Array, column_blocks: int, input_blocks: int) -> Array:
    """[out, kh, kw, in] -> [block of 32 outputs][kh][kw][block of 16 inputs][2][lane][8], as the left side of products.

    As :func:`pack_fragments` else. Lane 4g + t holds, for product i of a block, rows g and g + 8, which are output
    channels 4g + 2i and 4g + 2i + 1: first of input channels 4t and 4t + 1, then of 4t + 2 and 4t + 3.
    """
    out, kh, kw, depth = weights.shape
    blocks = tile_count(out, 2 * SIDE * column_blocks) * column_blocks
    padded = np.zeros((blocks * 2 * SIDE, kh, kw, input_blocks * SIDE), np.float32)
    padded[:out, ..., :depth] = weights
    # out = 32 block + 4 g + 2 i + row; in = 16 step + 4 t + 2 half + element
    axes = padded.reshape(blocks, 8, 2, 2, kh, kw, input_blocks, 4, 2, 2)
    return reordered(axes.transpose(0, 4, 5, 6, 2, 1, 7, 8, 3, 9))


M16N8K16 = MatrixUnit(
    name="mma.m16n8k16",
    side=SIDE,
    lanes=WARP,
    left_columns=2 * SIDE,
    pack_right=pack_fragments,
    pack_left=pack_left_fragments,
)
