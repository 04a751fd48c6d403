"""Matrix products on GPUs: each work-item computes some rows of some output slices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import product

from tflgpu.graph.layout import LANES, Size
from tflgpu.kernels.access import Access
from tflgpu.kernels.candidates import Candidate, Tile, ranked
from tflgpu.kernels.convolutions import bias_argument
from tflgpu.kernels.kernel import Argument, Kernel, Parameters
from tflgpu.kernels.portable.costs import KLoopWork
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import SPLIT_K, can_split, fits_registers, items_per_tile, split_workspace, tile_count
from tflgpu.target import ElementType, Target


@dataclass(frozen=True, kw_only=True)
class ItemProductsParameters(Parameters):
    """Parameters of ``templates/portable/item_products.cl.j2``."""

    rows: int
    slices_out: int
    split_k: int
    per_tile: Size


# Rows and output slices of a work-item. The first loads least: 14 vec4s for 12 products. Compilers for CPUs keep all of
# it in registers, also columns that they turn into rows; with 4 x 4 they do not (1.0 and 1.6 times the time of the same
# 1x1 convolution on Intel's runtime). An adjoint left side has them all, too: with multiples of four rows alone, eight
# rows would leave most compute units idle.
TILES = ((6, 2), (4, 4), (4, 2), (2, 4), (2, 2), (1, 4), (4, 1), (2, 1), (1, 2), (1, 1))

# Neighbouring work-items that take neighbouring vec4s of memory, the best first. Some 8 of them fill a cache line, and
# their neighbours, which are at another place of the other axis, share it.
NEIGHBOURS = (8, 9, 7, 10, 6, 11, 12)


@dataclass(frozen=True)
class Side:
    """How a factor lies in memory: [rows, depth] on the left and [depth, columns] on the right, swapped if ``adjoint``.

    row_stride, slice_stride: vec4s from one row of what is stored to the next, and from one slice. first: access to the
    first vec4 of a matrix; None if there is a single one. in_panels: whether the columns of each block of items are a
    matrix of their own, with zeros past the last column.
    """

    adjoint: bool
    row_stride: int
    slice_stride: int
    first: Access | None = None
    in_panels: bool = False


@dataclass(frozen=True)
class MatrixProduct:
    """``matrices`` products of [rows, depth] and [depth, 4 * slices].

    rows_are_images: whether the rows of the output are images of one pixel; else they are pixels.
    """

    left: Side
    right: Side
    matrices: int
    rows: int
    depth: int
    slices: int
    rows_are_images: bool


@dataclass(frozen=True)
class MatrixTile(Tile):
    """Rows and output slices of one work-item, and how many work-items share the depth."""

    rows: int
    slices: int
    split_k: int

    @property
    def accumulators(self) -> int:
        """vec4s of a work-item."""
        return self.rows * self.slices


@dataclass(frozen=True)
class Order:
    """How work-items go through the items of a matrix: along the axis where memory runs, in blocks of ``neighbours``.

    Within a block, after its ``neighbours`` items come those of the next of ``others``, the items of the other axis.
    """

    neighbours: int
    others: int
    blocks: int

    @property
    def items(self) -> int:
        """How many items a matrix has."""
        return self.neighbours * self.others * self.blocks


def order(shape: MatrixProduct, tile: MatrixTile) -> Order:
    """Return the order with the fewest items past the last one."""
    rows, columns = tile_count(shape.rows, tile.rows), tile_count(shape.slices, tile.slices)
    along, others = (columns, rows) if shape.rows_are_images else (rows, columns)
    neighbours = min(along, min(NEIGHBOURS, key=lambda n: tile_count(along, n) * n))
    return Order(neighbours, others, tile_count(along, neighbours))


def candidates(shape: MatrixProduct, target: Target) -> list[Candidate[MatrixTile, KLoopWork]]:
    """Return the tiles of a product, the fastest first."""
    return ranked(_tiles(shape, target), lambda tile: _work(shape, tile, target), target)


def _tiles(shape: MatrixProduct, target: Target) -> Iterator[MatrixTile]:
    k_slices = tile_count(shape.depth, LANES)
    for (rows, slices), split_k in product(TILES, SPLIT_K):
        fits = slices == 1 or fits_registers(target, rows * slices)
        if fits and slices <= shape.slices and split_k <= k_slices and can_split(target, split_k, rows * slices):
            yield MatrixTile(rows, slices, split_k)


def _work(shape: MatrixProduct, tile: MatrixTile, target: Target) -> KLoopWork:
    """Rows of an adjoint left side that are no whole vec4s are read element by element."""
    left = tile.rows * (LANES if shape.left.adjoint and tile.rows % LANES else 1)
    return KLoopWork(
        tiles=tile_count(shape.matrices * order(shape, tile).items * tile.split_k, target.local_size),
        k_steps=tile_count(shape.depth, LANES),
        loads=left + LANES * tile.slices,
        products=tile.accumulators,
        accumulators=tile.accumulators,
        split_k=tile.split_k,
    )


@dataclass(frozen=True, kw_only=True)
class ProductParameters(Parameters):
    """Parameters of templates of a :class:`MatrixProduct`: its sides."""

    left_side: Side
    right_side: Side
    row_count: Size
    depth: Size
    rows_are_images: bool
    has_bias: bool
    left: Argument
    right: Argument
    factor_type: ElementType


@dataclass(frozen=True, kw_only=True)
class MatrixProductParameters(
    ItemProductsParameters, ProductParameters, template="portable/matrix_product", stores_once=True
):
    """Parameters of ``templates/portable/matrix_product.cl.j2``."""

    slices_per_split: int
    neighbours: int
    others: int
    blocks: Size
    items: Size


def matrix_product(
    request: Request,
    target: Target,
    shape: MatrixProduct,
    tile: MatrixTile,
    factors: tuple[Argument, Argument],
    *,
    bias: bool,
) -> Kernel:
    """Return the kernel of a product with this tile. bias: whether the node has one to begin with."""
    g, (left, right) = request.output.geometry, factors
    items = order(shape, tile)
    cost = 2 * tile.accumulators * LANES * shape.depth
    per_tile = items_per_tile(shape.matrices * items.items, target, cost) // tile.split_k
    return Kernel(
        MatrixProductParameters(
            left_side=shape.left,
            right_side=shape.right,
            row_count=shape.rows,
            depth=shape.depth,
            rows_are_images=shape.rows_are_images,
            has_bias=bias,
            rows=tile.rows,
            slices_out=tile.slices,
            split_k=tile.split_k,
            slices_per_split=tile_count(shape.depth // LANES, tile.split_k),
            **asdict(items),
            items=shape.matrices * items.items,
            per_tile=per_tile,
            left=left,
            right=right,
            factor_type=request.factor_type(left.type, right.type),
        ),
        (*factors, bias_argument(request, g.slices * LANES)) if bias else factors,
        tiles=tile_count(shape.matrices * items.items, per_tile),
        local_size=target.local_size,
        workspace=split_workspace(target, tile.split_k, tile.accumulators),
        macs=g.pixels * g.channels * shape.depth,
        fills_vectors=True,
    )
