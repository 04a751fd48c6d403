"""Fully connected layers on GPUs: for few rows work-groups that share the depth, for many a matrix product."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tflgpu.graph.ir import Array
from tflgpu.graph.layout import LANES
from tflgpu.kernels.candidates import Candidate
from tflgpu.kernels.convolutions import is_vector_product
from tflgpu.kernels.gpu import GPU
from tflgpu.kernels.kernel import Kernel
from tflgpu.kernels.packing import pack_dense
from tflgpu.kernels.portable.costs import KLoopWork
from tflgpu.kernels.portable.matmul_kernels import (
    ROWS,
    VectorTile,
    choose_with_group,
    vector_candidates,
    vector_product,
)
from tflgpu.kernels.portable.matrix_products import MatrixProduct, MatrixTile, Side, matrix_product, order
from tflgpu.kernels.portable.matrix_products import candidates as product_candidates
from tflgpu.kernels.request import Request
from tflgpu.kernels.stored_integers import stored_integers
from tflgpu.target import Target

Tile = VectorTile | MatrixTile


def candidates(shape: MatrixProduct, target: Target, *, stored: bool = False) -> list[Candidate[Tile, KLoopWork]]:
    """Return the tiles of both kernels, the fastest first.

    A single row leaves nothing to share but its depth, as long as local memory holds a sum of each work-item. Of
    ``stored`` integers few rows are a vector product, too, which alone reads them: they are the most of what it reads.
    """
    found: list[Candidate[Tile, KLoopWork]] = [*vector_candidates(shape, target, in_parts=stored)]
    if shape.rows > (ROWS[-1] if stored else 1) or not found:
        found += product_candidates(shape, target)
    return sorted(found, key=lambda candidate: candidate.cycles)


def _best(request: Request) -> Candidate[Tile, KLoopWork] | None:
    """Return the fastest tile; None for shares, where work-groups cannot share a depth."""
    shape = _product(request)
    if request.shares == 1:
        return candidates(shape, request.target, stored=_has_stored_integers(request))[0]
    return next(iter(vector_candidates(shape, request.target, request.shares)), None)


def _has_stored_integers(request: Request) -> bool:
    """Whether the weights of few rows may stay integers in device memory."""
    few = request.output.batch <= ROWS[-1] and request.target.arithmetic != "half"
    return few and stored_integers(request) is not None


def _product(request: Request) -> MatrixProduct:
    """Return a layer as a matrix product whose right side, the weights, lies as the output does."""
    src, dst = request.input(0), request.output
    left, right = Side(False, src.slices, slice_stride=1), Side(False, dst.slices, slice_stride=1)
    depth = request.constant(1).size // dst.channels
    return MatrixProduct(left, right, 1, dst.batch, depth, dst.slices, rows_are_images=True)


@GPU.lowering("convolution", when=is_vector_product, best=_best)
@GPU.lowering("fully_connected", best=_best)
def fully_connected(request: Request) -> Kernel:
    """Return a fully connected layer: a vector product for few rows, else a matrix product."""
    shape, weights = _product(request), request.constant(1).reshape(request.output.channels, -1)
    if request.shares > 1:
        shared = request.choose_candidate(vector_candidates(shape, request.target, request.shares))
        return _vector_kernel(request, request.target, weights, shared.tile)
    chosen, target = choose_with_group(request, partial(candidates, shape, stored=_has_stored_integers(request)))
    tile = chosen.tile
    if isinstance(tile, VectorTile):
        return _vector_kernel(request, target, weights, tile)
    panel = order(shape, tile).neighbours * tile.slices
    packed = request.weights("right", pack_dense(weights[:, None, None, :], panel * LANES, shape.depth))
    in_panels = replace(shape, right=Side(False, panel, slice_stride=1, in_panels=True))
    return matrix_product(request, target, in_panels, tile, (request.activation("left", 0), packed), bias=True)


def _vector_kernel(request: Request, target: Target, weights: Array, tile: VectorTile) -> Kernel:
    """weights: [out, in]. The depth is whole slices of the image; weights of lanes past its last channel are zero."""
    depth = request.input(0).slices * LANES
    shape, stored = replace(_product(request), right=Side(False, 1, slice_stride=depth), depth=depth), None
    if target.arithmetic != "half":
        stored = stored_integers(request)
    if stored is not None:
        packed = stored.weights("right", LANES, depth)
    else:
        packed = request.weights("right", pack_dense(weights[:, None, None, :], LANES, depth))
    factors = request.activation("left", 0), packed
    kernel = vector_product(request, target, shape, tile, factors, bias=True, stored=stored)
    return replace(kernel, macs=request.output.batch * weights.size)
