"""Products of two activations: for few rows work-groups that share the depth, else blocks in registers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from tflgpu.graph.layout import LANES, Geometry, Shape, Size
from tflgpu.kernels.access import Access, reach
from tflgpu.kernels.architecture import PORTABLE
from tflgpu.kernels.candidates import AnyTile, AnyWork, Candidate, Tile, ranked
from tflgpu.kernels.convolutions import bias_argument
from tflgpu.kernels.kernel import Argument, Kernel
from tflgpu.kernels.packing import StoredIntegers
from tflgpu.kernels.portable.costs import KLoopWork
from tflgpu.kernels.portable.matrix_products import (
    MatrixProduct,
    MatrixTile,
    ProductParameters,
    Side,
    candidates,
    matrix_product,
)
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import fits_local, reduces_in_subgroups, split_workspace, tile_count
from tflgpu.ops.arithmetic.matmul import MatMul, matrix_of
from tflgpu.target import Target
from tflgpu.target.corrections import corrected

SIZES = (64, 256)


def choose_with_group(
    request: Request, candidates: Callable[[Target], Sequence[Candidate[AnyTile, AnyWork]]]
) -> tuple[Candidate[AnyTile, AnyWork], Target]:
    """One of the candidates, and the target with the work-groups that it is for.

    After those for the usual groups comes the best one for each other size: the cost model knows nothing of what
    several groups of a compute unit do at once. A persistent kernel has one size of groups for all.
    """
    usual = request.target
    found = {candidate.tile.config: (candidate, usual) for candidate in candidates(usual)}
    for size in SIZES if usual.executor == "launch" else ():
        target = replace(usual, group=size)
        if target.local_size == size != usual.local_size:
            best = candidates(target)[0]
            found[(*best.tile.config, size)] = best, target
    return found[request.choose(list(found))]


ROWS = (1, 2, 4, 8)
FEWER_SHARERS = (128, 64, 32)


@dataclass(frozen=True)
class VectorTile(Tile):
    """Rows of one slice or of several, the depth of each of which ``sharers`` work-items of a group share."""

    sharers: int
    rows: int


def vector_candidates(
    shape: MatrixProduct, target: Target, shares: int = 1, *, in_parts: bool = False
) -> list[Candidate[VectorTile, KLoopWork]]:
    """Return the tiles of a product, or of shares of it, the fastest first.

    None if local memory does not hold a sum of each work-item. in_parts: whether parts of a group may have a slice of a
    single row each, which leaves a short depth to fewer work-items.
    """
    size = target.local_size
    several = in_parts and shape.rows == 1 and shape.slices > 1
    sharers = (size, *(n for n in FEWER_SHARERS if several and n < size))
    fits = fits_local(target, size)
    tiles = (VectorTile(sharing, n) for sharing in sharers for n in ROWS if n < 2 * shape.rows and fits)
    return ranked(tiles, lambda tile: _work(shape, tile, target, shares), target)


def _work(shape: MatrixProduct, tile: VectorTile, target: Target, shares: int) -> KLoopWork:
    """Return a step is one element of the depth, a vec4 of the right side for all rows; four of each with an adjoint
    side."""
    elements = LANES if shape.right.adjoint else 1
    return KLoopWork(
        tiles=shares * shape.matrices * tile_count(shape.rows, tile.rows) * _slice_blocks(shape, tile, target),
        k_steps=tile_count(tile_count(shape.depth, elements), shares),
        loads=elements * (1 + tile.rows / LANES),
        products=elements * tile.rows / LANES,
        accumulators=tile.rows,
        split_k=tile.sharers,
    )


def _slice_blocks(shape: MatrixProduct, tile: VectorTile, target: Target) -> int:
    """Work-groups for all slices of some rows."""
    return tile_count(shape.slices, target.local_size // tile.sharers)


@dataclass(frozen=True, kw_only=True)
class VectorProductParameters(ProductParameters, template="portable/vector_product", stores_once=True):
    """Parameters of ``templates/portable/vector_product.cl.j2``."""

    rows: int
    sharers: int
    slices_out: int
    slice_blocks: Size
    row_blocks: Size
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
    """Return the kernel of a product with this tile, or of shares of it.

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
            sharers=tile.sharers,
            slices_out=1,
            slice_blocks=_slice_blocks(shape, tile, target),
            row_blocks=blocks,
            shares=request.shares,
            left=left,
            right=right,
            factor_type=request.factor_type(left.type, right.type),
            subgroups=reduces_in_subgroups(target, tile.sharers),
            scale_block=0 if stored is None else stored.scale_block(shape.depth),
            together=1 if stored is None else stored.together,
        ),
        (*factors, *scales, bias_argument(request, g.slices * LANES)) if bias else factors,
        tiles=shape.matrices * blocks * _slice_blocks(shape, tile, target),
        local_size=target.local_size,
        workspace=split_workspace(target, tile.sharers, 1),
        macs=g.pixels * g.channels * shape.depth,
    )


ProductTile = VectorTile | MatrixTile


@PORTABLE.lowering("matmul")
def matmul(request: Request) -> Kernel:
    """Return a product of two activations, by the kernel that the cost model ranks first.

    CPUs take it where rows do not lie side by side and the sides are too small to be moved.
    """
    shape, sides = product_of(request)
    chosen, target = choose_with_group(request, partial(matmul_candidates, shape))
    if isinstance(chosen.tile, VectorTile):
        return vector_product(request, target, shape, chosen.tile, sides, bias=False)
    return matrix_product(request, target, shape, chosen.tile, sides, bias=False)


def product_of(request: Request) -> tuple[MatrixProduct, tuple[Argument, Argument]]:
    """Return a node's product, and its sides as arguments."""
    attributes, g = request.attributes(MatMul), request.output.geometry
    left, right = request.operand("left", 0), request.operand("right", 1)
    rows, depth = matrix_of(request.shape(0).shape, attributes.adjoint_left)
    shape = MatrixProduct(
        _side(left, request.shape(0), g.shape, attributes.adjoint_left),
        _side(right, request.shape(1), g.shape, attributes.adjoint_right),
        matrices=g.pixels // rows,
        rows=rows,
        depth=depth,
        slices=g.slices,
        rows_are_images=len(g.shape) == 2,
    )
    return shape, (left, right)


def matmul_candidates(shape: MatrixProduct, target: Target) -> list[Candidate[ProductTile, KLoopWork]]:
    """Return the tiles of both kernels, the fastest first.

    Groups share the depth only where their neighbours' vec4s of the right side are neighbours in memory.
    """
    found: list[Candidate[ProductTile, KLoopWork]] = [*candidates(shape, target)]
    has_neighbours = not shape.rows_are_images and shape.right.row_stride == 1
    shared = vector_candidates(shape, target) if has_neighbours else []
    if not shared:
        return found

    def cycles(candidate: Candidate[ProductTile, KLoopWork]) -> float:
        if isinstance(candidate.tile, MatrixTile) and shape.right.adjoint:
            return corrected("portable/matrix_product of an adjoint right side", candidate.cycles, shared[0].cycles)
        return candidate.cycles

    return sorted([*found, *shared], key=cycles)


def _side(argument: Argument, geometry: Geometry, output: Shape, adjoint: bool) -> Side:
    return Side(adjoint, geometry.axis_strides[-1], geometry.plane, matrix_access(argument, geometry, output))


def matrix_access(argument: Argument, geometry: Geometry, output: Shape) -> Access:
    """Access to the first vec4 of the matrix that belongs to an output: batch axes of size 1 broadcast."""
    rank = len(output)
    return reach(argument, geometry, output, {rank - 2, rank - 1})
