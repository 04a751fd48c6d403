"""Products of two activations: for few rows work-groups that share the depth, else blocks in registers."""

from __future__ import annotations

from functools import partial

from tflgpu.graph.layout import Geometry, Shape
from tflgpu.kernels.access import Access, reach
from tflgpu.kernels.architecture import PORTABLE
from tflgpu.kernels.candidates import Candidate
from tflgpu.kernels.kernel import Argument, Kernel
from tflgpu.kernels.portable.costs import KLoopWork
from tflgpu.kernels.portable.matrix_products import MatrixProduct, MatrixTile, Side, candidates, matrix_product
from tflgpu.kernels.portable.tuned_groups import choose_with_group
from tflgpu.kernels.portable.vector_products import VectorTile, vector_candidates, vector_product
from tflgpu.kernels.request import Request
from tflgpu.ops.arithmetic.matmul import MatMul, matrix_of
from tflgpu.target import Target
from tflgpu.target.corrections import corrected

Tile = VectorTile | MatrixTile


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


def matmul_candidates(shape: MatrixProduct, target: Target) -> list[Candidate[Tile, KLoopWork]]:
    """Return the tiles of both kernels, the fastest first.

    Groups share the depth only where their neighbours' vec4s of the right side are neighbours in memory.
    """
    found: list[Candidate[Tile, KLoopWork]] = [*candidates(shape, target)]
    has_neighbours = not shape.rows_are_images and shape.right.row_stride == 1
    shared = vector_candidates(shape, target) if has_neighbours else []
    if not shared:
        return found

    def cycles(candidate: Candidate[Tile, KLoopWork]) -> float:
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
