"""Products of few rows on GPUs: the work-items of a group share the depth."""

from __future__ import annotations

from dataclasses import dataclass

from tflgpu.graph.layout import LANES
from tflgpu.kernels.candidates import Candidate, Tile, ranked
from tflgpu.kernels.convolutions import bias_argument
from tflgpu.kernels.demand import cycles
from tflgpu.kernels.gpu.costs import KLoopWork
from tflgpu.kernels.gpu.matrix_products import MatrixProduct, ProductParameters
from tflgpu.kernels.kernel import Argument, Kernel
from tflgpu.kernels.request import Request
from tflgpu.kernels.stored_integers import StoredIntegers
from tflgpu.kernels.tiling import fits_local, reduces_in_subgroups, split_workspace, tile_count
from tflgpu.target import Target

ROWS = (1, 2, 4, 8)


@dataclass(frozen=True)
class VectorTile(Tile):
    """Rows of one slice, whose depth all work-items of a group share."""

    rows: int


def vector_candidates(shape: MatrixProduct, target: Target, shares: int = 1) -> list[Candidate[VectorTile, KLoopWork]]:
    """The tiles of a product, or of shares of it, the fastest first.

    None if local memory does not hold a sum of each work-item.
    """
    tiles = (VectorTile(n) for n in ROWS if n < 2 * shape.rows and fits_local(target, target.local_size))
    return ranked(tiles, lambda tile: _work(shape, tile, target, shares), lambda work: cycles(work, target))


def _work(shape: MatrixProduct, tile: VectorTile, target: Target, shares: int) -> KLoopWork:
    """A step is one element of the depth, a vec4 of the right side for all rows; four of each with an adjoint side."""
    elements = LANES if shape.right.adjoint else 1
    return KLoopWork(
        tiles=shares * shape.matrices * tile_count(shape.rows, tile.rows) * shape.slices,
        k_steps=tile_count(tile_count(shape.depth, elements), shares),
        loads=elements * (1 + tile.rows / LANES),
        products=elements * tile.rows / LANES,
        accumulators=tile.rows,
        split_k=target.local_size,
    )


@dataclass(frozen=True, kw_only=True)
class VectorProductParameters(ProductParameters, template="gpu/vector_product"):
    """Parameters of ``templates/gpu/vector_product.cl.j2``."""

    rows: int
    slices_out: int
    row_blocks: int
    shares: int
    subgroups: bool
    scale_block: int
    together: int


def vector_product(
    request: Request,
    target: Target,
    shape: MatrixProduct,
    tile: VectorTile,
    factors: tuple[Argument, Argument],
    *,
    bias: bool,
    stored: StoredIntegers | None = None,
) -> Kernel:
    """The kernel of a product with this tile, or of shares of it.

    bias: whether the node has one to add. stored: what the right side is, if it is weights that are integers.
    """
    g, (left, right) = request.output.geometry, factors
    scales = () if stored is None else (stored.scales_argument(g.slices * LANES),)
    blocks = tile_count(shape.rows, tile.rows)
    return Kernel(
        VectorProductParameters(
            left_side=shape.left,
            right_side=shape.right,
            row_count=shape.rows,
            depth=shape.depth,
            rows_are_images=shape.rows_are_images,
            has_bias=bias,
            rows=tile.rows,
            slices_out=1,
            row_blocks=blocks,
            shares=request.shares,
            left=left,
            right=right,
            factor_type=request.factor_type(left.type, right.type),
            subgroups=reduces_in_subgroups(target, target.local_size),
            scale_block=0 if stored is None else stored.scale_block(shape.depth),
            together=1 if stored is None else stored.together,
        ),
        (*factors, *scales, bias_argument(request, g.slices * LANES)) if bias else factors,
        tiles=shape.matrices * blocks * shape.slices,
        local_size=target.local_size,
        workspace=split_workspace(target, target.local_size, 1),
        macs=g.pixels * g.channels * shape.depth,
    )
