"""Products of matrices that are both computed at run time, on CPUs: blocks of rows by columns, whose sums stay in
registers."""

from __future__ import annotations

from dataclasses import dataclass

from tflgpu.graph.layout import LANES, Size
from tflgpu.kernels.access import Access, reach
from tflgpu.kernels.cpu import CPU
from tflgpu.kernels.cpu.block_products import (
    BLOCKS,
    BlockProductsParameters,
    blocks_per_tile,
    choose_quads,
    vectors_in_registers,
)
from tflgpu.kernels.kernel import Kernel
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import tile_count
from tflgpu.ops.arithmetic.matmul import MatMul, matrix_of


def _has_rows_side_by_side(request: Request) -> bool:
    """Whether rows of the left side, and of an adjoint right one, are neighbours in memory: pixels of one row."""
    attributes = request.attributes(MatMul)
    sides = [0, 1] if attributes.adjoint_right else [0]
    are_pixels = all(len(request.shape(side).shape) >= 3 for side in sides)
    return not attributes.adjoint_left and are_pixels


@dataclass(frozen=True, kw_only=True)
class MatmulQuadsParameters(BlockProductsParameters, template="cpu/matmul_quads", stores_once=True):
    """Parameters of ``templates/cpu/matmul_quads.cl.j2``."""

    left: Access
    right: Access
    left_plane: Size
    right_plane: Size
    right_stride: Size
    adjoint_right: bool
    depth: Size
    column_blocks: int
    blocks: Size


@CPU.lowering("matmul", when=_has_rows_side_by_side, reads_grids=True)
def matmul_of_quads(request: Request) -> Kernel:
    """Blocks of quads, which are four neighbouring rows of a slice, by output slices."""
    attributes, g = request.attributes(MatMul), request.output.geometry
    left, right = request.operand("left", 0), request.operand("right", 1)
    left_shape, right_shape = request.shape(0), request.shape(1)
    _, depth = matrix_of(left_shape.shape, attributes.adjoint_left)
    row_axis, last_axis = len(g.shape) - 2, len(g.shape) - 1
    vectors = vectors_in_registers(request.target)
    slices = min(BLOCKS.most_slices, vectors - 2, g.slices)
    # Four columns of an adjoint side stay in registers, too, while their elements come first in turn.
    most = max(1, (vectors - (slices if attributes.adjoint_right else 0)) // (slices + 2))
    quads = choose_quads(request, g.width, most)
    column_blocks = tile_count(g.slices, slices)
    row_blocks = tile_count(g.width, quads * LANES)
    others = g.batch * g.height * column_blocks
    cost = 2 * quads * slices * LANES**2 * depth
    per_tile = blocks_per_tile(row_blocks * others, 1, cost, request.target)
    return Kernel(
        MatmulQuadsParameters(
            left=reach(left, left_shape, g.shape, {last_axis}),
            right=reach(right, right_shape, g.shape, {row_axis, last_axis}),
            left_plane=left_shape.plane,
            right_plane=right_shape.plane,
            right_stride=right_shape.axis_strides[-1],
            adjoint_right=attributes.adjoint_right,
            depth=depth,
            rows=quads * LANES,
            slices_out=slices,
            blocks_per_tile=per_tile,
            column_blocks=column_blocks,
            blocks=row_blocks * others,
            factor_type=request.factor_type(left.type, right.type),
        ),
        (left, right),
        tiles=tile_count(row_blocks * others, per_tile),
        local_size=1,
        macs=g.batch * g.plane * g.channels * depth,
    )
