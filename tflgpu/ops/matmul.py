"""BATCH_MATMUL, with either side transposed and batch axes that broadcast."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tflgpu.ir import Tensor
from tflgpu.layout import Geometry, Shape
from tflgpu.ops.access import Access, access, coordinates
from tflgpu.ops.base import Emitter, Site, declare
from tflgpu.ops.kernel import Argument, Kernel, Request, items_per_tile, tile_count, variant


@dataclass(frozen=True)
class MatMul:
    """Inputs: left [..., m, k] and right [..., k, n]; an adjoint side has its last two axes swapped."""

    adjoint_left: bool
    adjoint_right: bool


def _matrix(shape: Shape, adjoint: bool) -> tuple[int, int]:
    """Rows and columns of the matrices of a tensor, as the product sees them."""
    return (shape[-1], shape[-2]) if adjoint else (shape[-2], shape[-1])


def _product_shape(site: Site) -> Shape:
    left, right = site.input(0).shape, site.input(1).shape
    rows, _ = _matrix(left, bool(site.options.get("adj_x")))
    _, columns = _matrix(right, bool(site.options.get("adj_y")))
    return (*np.broadcast_shapes(left[:-2], right[:-2]), rows, columns)


def _reasons(site: Site) -> Iterator[str]:
    left, right = site.input(0).shape, site.input(1).shape
    if min(len(left), len(right)) < 2:
        yield f"its inputs {list(left)} and {list(right)} are not both matrices"
        return
    _, depth = _matrix(left, bool(site.options.get("adj_x")))
    height, _ = _matrix(right, bool(site.options.get("adj_y")))
    if depth != height:
        yield f"its matrices have {depth} columns on the left and {height} rows on the right"
    try:
        np.broadcast_shapes(left[:-2], right[:-2])
    except ValueError:
        yield f"its batch axes {list(left[:-2])} and {list(right[:-2])} do not broadcast"


@declare("BATCH_MATMUL", versions=4, inputs=2, reasons=_reasons)
def batch_matmul(site: Site, emit: Emitter) -> Tensor:
    attributes = MatMul(bool(site.options.get("adj_x")), bool(site.options.get("adj_y")))
    return emit.node("matmul", [site.input(0), site.input(1)], _product_shape(site), attributes)


@variant("matmul")
def matmul_kernel(request: Request) -> Kernel:
    attributes, g = request.node.attributes, request.output.geometry
    assert isinstance(attributes, MatMul)
    left, right = request.operand("left", 0), request.operand("right", 1)
    left_shape, right_shape = request.shape(0), request.shape(1)
    _, depth = _matrix(left_shape.shape, attributes.adjoint_left)
    row_axis, last_axis = len(g.shape) - 2, len(g.shape) - 1
    # A side that is not transposed follows the output along one axis: the left its rows, the right its columns.
    left_fixed = {last_axis, row_axis} if attributes.adjoint_left else {last_axis}
    right_fixed = {last_axis, row_axis} if attributes.adjoint_right else {row_axis}
    per_tile = items_per_tile(g.quads, request.target, 10 * depth)
    return Kernel(
        "matmul",
        {
            "left": _reach(left, left_shape, g.shape, left_fixed),
            "right": _reach(right, right_shape, g.shape, right_fixed),
            "left_stride": left_shape.axis_strides[-1],
            "right_stride": right_shape.axis_strides[-1],
            "left_plane": left_shape.plane,
            "right_plane": right_shape.plane,
            "adjoint_left": attributes.adjoint_left,
            "adjoint_right": attributes.adjoint_right,
            "row": coordinates(g.shape)[row_axis],
            "depth": depth,
            "per_tile": per_tile,
            "dirty": attributes.adjoint_right,
        },
        (left, right),
        tiles=tile_count(g.quads, per_tile),
        local_size=request.target.local_size,
        macs=g.batch * g.plane * g.channels * depth,
    )


def _reach(argument: Argument, geometry: Geometry, output: Shape, fixed: set[int]) -> Access:
    """Access that follows the output along the axes that are not ``fixed``, batch axes of size 1 broadcast."""
    padded = (1,) * (len(output) - len(geometry.shape)) + geometry.shape
    still = fixed | {i for i in range(len(output) - 2) if padded[i] == 1}
    return access(argument.name, argument.type, geometry.shape, output, fixed=still)
