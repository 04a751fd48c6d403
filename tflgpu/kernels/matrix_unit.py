"""What kernels of implicit GEMM need to know of a matrix unit, and what its work costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tflgpu.graph.ir import Array
from tflgpu.graph.layout import LANES
from tflgpu.kernels.tiling import tile_count

# Weights [out, kh, kw, in], blocks of columns that divide the result, blocks of K -> fragments in the order in which
# lanes load them; channels that the weights do not have are zero.
PackFragments = Callable[[Array, int, int], Array]


@dataclass(frozen=True, kw_only=True)
class MatrixUnitCosts:
    """Costs of kernels on matrix units.

    pixel_block_cycles, weight_block_cycles: of the caches, for one block of 16 x 16 operands that a warp loads: pixels
        come from four slices, weights are 512 bytes in a row.
    depthwise_vec4_cycles: of a vec4 of a depthwise result that each work-item computes from global memory.
    depthwise_row_vec4_cycles: the same from local memory.
    diagonal_vec4_cycles: of the caches, for a vec4 that each lane of a warp loads or stores in a depthwise convolution
        by diagonal matrices.
    local_k_step_latency: of a k-step whose operands are in registers and in local memory.
    part_product_cycles: of a product of parts of floats, of two blocks of 16 x 16.
    row_product_cycles: of a product with 8 pixels of a row in local memory.
    """

    pixel_block_cycles: float
    weight_block_cycles: float
    depthwise_vec4_cycles: float
    depthwise_row_vec4_cycles: float
    diagonal_vec4_cycles: float
    local_k_step_latency: float
    part_product_cycles: float
    row_product_cycles: float


@dataclass(frozen=True, kw_only=True)
class MultistageCosts:
    """Costs of convolutions that stage their operands in local memory, in several stages.

    macs, local_bytes, l2_bytes, stored_bytes: per cycle of a compute unit, as kernels reach them.
    tile_latency: of a tile without any k-step. copy_latency: until a copy to local memory is there. barrier_latency: of
        the barrier of one stage. While one work-group waits for these, others of the compute unit work.
    """

    macs: float
    local_bytes: float
    l2_bytes: float
    stored_bytes: float
    tile_latency: float
    copy_latency: float
    barrier_latency: float


@dataclass(frozen=True, kw_only=True)
class PatchCosts:
    """Costs of convolutions all of whose taps read one copy of the image in local memory.

    units: matrix units of a compute unit. macs: of one of them in a cycle. local_bytes, l2_bytes: per cycle of a
        compute unit, as kernels reach them. barrier_latency: as of :class:`MultistageCosts`.
    """

    units: int
    macs: float
    local_bytes: float
    l2_bytes: float
    barrier_latency: float


@dataclass(frozen=True)
class MatrixUnit:
    """A matrix unit, as kernels use it: products of square blocks of halves, or parts of floats, with sums in float.

    name: as :class:`tflgpu.target.Target` has it. side: rows, columns and K of a block. lanes: work-items that hold the
    fragments of a block together. left_columns: output channels of a block of weights on the left side of a product.
    pack_right, pack_left: weights as the right and as the left side of products. costs, multistage, patch: in cycles of
    the compute unit that it belongs to.
    """

    name: str
    side: int
    lanes: int
    left_columns: int
    pack_right: PackFragments
    pack_left: PackFragments
    costs: MatrixUnitCosts
    multistage: MultistageCosts
    patch: PatchCosts

    def blocks(self, vec4s: int) -> int:
        """How many blocks ``vec4s`` vec4s along a side of the product fill, the last one perhaps in part."""
        return tile_count(vec4s, self.side // LANES)
