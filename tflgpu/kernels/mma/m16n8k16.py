"""The tensor core of NVIDIA's GPUs from compute capability 8.0 on: its shape, and how operands lie in registers.

The layout of fragments is that of ``mma.sync.aligned.m16n8k16`` in the PTX ISA, "Matrix Fragments for mma.m16n8k16".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tflgpu.graph.ir import Array
from tflgpu.graph.layout import LANES
from tflgpu.kernels.kernel import Storage
from tflgpu.kernels.packing import reordered
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import tile_count
from tflgpu.target import ITEM_BYTES, is_exact_in_half
from tflgpu.target.measured_costs import TensorCoreCosts, tensor_core_costs

# Weights [out, kh, kw, in], blocks of columns that divide the result, blocks of K -> fragments in the order in which
# lanes load them; channels that the weights do not have are zero.
PackFragments = Callable[[Array, int, int], Array]


@dataclass(frozen=True)
class MatrixUnit:
    """A tensor core, as kernels use it: products of square blocks of halves, or parts of floats, with sums in float.

    name: as :class:`tflgpu.target.Target` has it. side: rows, columns and K of a block. lanes: work-items that hold the
    fragments of a block together. left_columns: output channels of a block of weights on the left side of a product.
    pack_right, pack_left: weights as the right and as the left side of products.
    """

    name: str
    side: int
    lanes: int
    left_columns: int
    pack_right: PackFragments
    pack_left: PackFragments

    @property
    def costs(self) -> TensorCoreCosts:
        """Costs of its work."""
        return tensor_core_costs(self.name)

    @property
    def block_registers(self) -> int:
        """Registers of a lane, for halves of a block."""
        return self.side**2 * ITEM_BYTES["half"] // (ITEM_BYTES["int"] * self.lanes)

    def blocks(self, vec4s: int) -> int:
        """Return how many blocks vec4s along a side of the product fill, the last one perhaps in part.

        Args:
            vec4s: Along that side.
        """
        return tile_count(vec4s, self.side // LANES)


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

OperandType = Literal["half", "float"]

PARTS: dict[OperandType, tuple[str, ...]] = {"half": ("high",), "float": ("low", "high")}

HALVES: dict[OperandType, int] = {"half": 1, "float": 2}  # that take as much memory


@dataclass(frozen=True)
class Operands:
    """The types in memory of the left side of products, the image, and of the right side, the weights."""

    image: OperandType
    weights: OperandType

    @property
    def are_halves(self) -> bool:
        """Whether products take both operands as they are."""
        return self.image == self.weights == "half"

    @property
    def parts(self) -> list[tuple[str, str]]:
        """Which parts of the two sides are multiplied, the smallest products first; not for halves."""
        pairs = [(left, right) for left in PARTS[self.image] for right in PARTS[self.weights]]
        return [pair for pair in pairs if pair != ("low", "low")]

    @property
    def sizes(self) -> tuple[int, int]:
        """Sizes of both, in halves."""
        return HALVES[self.image], HALVES[self.weights]

    def float4s(self, vec4s: int) -> int:
        """Return the float4s of local memory for ``vec4s`` of pixels that lie there as in the image."""
        return tile_count(vec4s * HALVES[self.image], HALVES["float"])

    def registers(self, row_blocks: int, column_blocks: int) -> int:
        """Return the registers of a lane for one k-step of a warp tile."""
        image, weights = self.sizes
        return M16N8K16.block_registers * (image * row_blocks + weights * column_blocks)


def operands_of_image(src: Storage, weights: OperandType) -> Operands:
    """Return the operands of products of an image as it is stored."""
    return Operands("half" if src.type == "half" else "float", weights)


def type_of_constant(request: Request, data: Array) -> OperandType:
    """Half if it holds each of the numbers, or if the model is in half."""
    return "half" if request.target.storage == "half" or is_exact_in_half(data) else "float"
