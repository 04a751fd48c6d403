"""Facts about a tensor core that kernels of implicit GEMM need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tflgpu.graph.ir import Array
from tflgpu.graph.layout import LANES
from tflgpu.kernels.tiling import tile_count
from tflgpu.target import ITEM_BYTES
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
