"""Products of two activations in half on tensor cores: each warp computes a tile of its own."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from tflgpu.graph.layout import Size
from tflgpu.kernels.candidates import Candidate, ranked
from tflgpu.kernels.kernel import Kernel
from tflgpu.kernels.mma import MMA
from tflgpu.kernels.mma.costs import GemmWork
from tflgpu.kernels.mma.gemm.packed_weights import LOOPS, WarpTile, warp_tiles
from tflgpu.kernels.mma.gemm.skeletons import RegistersParameters
from tflgpu.kernels.mma.m16n8k16 import M16N8K16 as UNIT
from tflgpu.kernels.mma.m16n8k16 import Operands
from tflgpu.kernels.portable.matmul_kernels import matmul_candidates, product_of
from tflgpu.kernels.portable.matrix_products import MatrixProduct, Side
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import even_part, split_workspace, tile_count
from tflgpu.target import Target


def _candidates(shape: MatrixProduct, target: Target) -> list[Candidate[WarpTile, GemmWork]]:
    """Return the tiles of a product, the fastest first."""
    k_steps = tile_count(shape.depth, UNIT.side)

    def work(tile: WarpTile) -> GemmWork:
        return GemmWork(
            operands=Operands("half", "half"),
            tiles=shape.matrices * _row_tiles(shape, tile, target) * _column_tiles(shape, tile),
            k_steps=k_steps,
            row_blocks=tile.row_blocks,
            column_blocks=tile.column_blocks,
            split_k=tile.split_k,
            packed=False,
        )

    return ranked(warp_tiles(target, k_steps), work, target)


def _row_tiles(shape: MatrixProduct, tile: WarpTile, target: Target) -> int:
    """Work-groups one below the other in a matrix."""
    warps = target.local_size // UNIT.lanes
    return tile_count(shape.rows, UNIT.side * tile.row_blocks * (warps // tile.split_k))


def _column_tiles(shape: MatrixProduct, tile: WarpTile) -> int:
    """Work-groups side by side in a matrix."""
    return tile_count(UNIT.blocks(shape.slices), tile.column_blocks)


def _is_faster(request: Request) -> bool:
    """Whether both sides are halves, and tensor cores faster than work-items by the cost model."""
    shape, sides = product_of(request)
    if {side.type for side in sides} != {"half"}:
        return False
    return _candidates(shape, request.target)[0].cycles < matmul_candidates(shape, request.target)[0].cycles


@dataclass(frozen=True, kw_only=True)
class ActivationsParameters(RegistersParameters, template="mma/gemm/activations", stores_once=True):
    """Parameters of ``templates/mma/gemm/activations.cl.j2``."""

    left_side: Side
    right_side: Side
    matrix_rows: Size
    depth: Size
    rows_are_images: bool
    row_tiles: Size


@MMA.lowering("matmul", when=_is_faster)
def activation_product(request: Request) -> Kernel:
    """Return a product of two activations."""
    (shape, sides), g, target = product_of(request), request.output.geometry, request.target
    chosen = request.choose_candidate(_candidates(shape, target))
    tile = chosen.tile
    # An adjoint left side, or a right side that is not adjoint, takes twice the registers of the 16 x 16 elements that
    # are multiplied.
    row_registers = UNIT.block_registers * (2 if shape.left.adjoint else 1)
    column_registers = UNIT.block_registers * (1 if shape.right.adjoint else 2)
    registers = row_registers * tile.row_blocks + column_registers * tile.column_blocks
    k_steps_per_split = tile_count(chosen.work.k_steps, tile.split_k)
    return Kernel(
        ActivationsParameters(
            left_side=shape.left,
            right_side=shape.right,
            matrix_rows=shape.rows,
            depth=shape.depth,
            rows_are_images=shape.rows_are_images,
            operands=chosen.work.operands,
            **asdict(tile),
            double_buffered=False,
            k_steps_per_split=k_steps_per_split,
            prefetch_depth=even_part(k_steps_per_split, LOOPS.batch_registers // registers),
            row_tiles=_row_tiles(shape, tile, target),
            column_tiles=_column_tiles(shape, tile),
        ),
        sides,
        tiles=chosen.work.tiles,
        local_size=target.local_size,
        workspace=split_workspace(target, tile.split_k, tile.accumulators),
        macs=g.pixels * g.channels * shape.depth,
    )
