"""The kernel of products of matrices that are both computed at run time."""

from __future__ import annotations

from dataclasses import dataclass

from tflgpu.graph.layout import Geometry, Shape
from tflgpu.kernels.access import Access, Coordinate, access, coordinates
from tflgpu.kernels.architecture import PORTABLE
from tflgpu.kernels.items import ItemParameters, item_kernel
from tflgpu.kernels.kernel import Argument, Kernel
from tflgpu.kernels.request import Request
from tflgpu.ops.arithmetic.matmul import MatMul, matrix_of
from tflgpu.target import ElementType


@dataclass(frozen=True, kw_only=True)
class MatmulParameters(ItemParameters, template="portable/matmul"):
    """Parameters of ``templates/portable/matmul.cl.j2``."""

    left: Access
    right: Access
    left_stride: int
    right_stride: int
    left_plane: int
    right_plane: int
    adjoint_left: bool
    adjoint_right: bool
    row: Coordinate
    depth: int
    factor_type: ElementType


@PORTABLE.lowering("matmul")
def matmul_kernel(request: Request) -> Kernel:
    """A product of two activations whose work-items each compute a vec4 of the output."""
    attributes, g = request.node.attributes, request.output.geometry
    assert isinstance(attributes, MatMul)
    left, right = request.operand("left", 0), request.operand("right", 1)
    left_shape, right_shape = request.shape(0), request.shape(1)
    _, depth = matrix_of(left_shape.shape, attributes.adjoint_left)
    row_axis, last_axis = len(g.shape) - 2, len(g.shape) - 1
    # A side that is not transposed follows the output along one axis: the left its rows, the right its columns.
    left_fixed = {last_axis, row_axis} if attributes.adjoint_left else {last_axis}
    right_fixed = {last_axis, row_axis} if attributes.adjoint_right else {row_axis}
    return item_kernel(
        request,
        MatmulParameters(
            left=reach(left, left_shape, g.shape, left_fixed),
            right=reach(right, right_shape, g.shape, right_fixed),
            left_stride=left_shape.axis_strides[-1],
            right_stride=right_shape.axis_strides[-1],
            left_plane=left_shape.plane,
            right_plane=right_shape.plane,
            adjoint_left=attributes.adjoint_left,
            adjoint_right=attributes.adjoint_right,
            row=coordinates(g.shape)[row_axis],
            depth=depth,
            factor_type=request.factor_type(left.type, right.type),
        ),
        (left, right),
        10 * depth,
        macs=g.batch * g.plane * g.channels * depth,
    )


def reach(argument: Argument, geometry: Geometry, output: Shape, fixed: set[int]) -> Access:
    """Access that follows the output along the axes that are not ``fixed``, batch axes of size 1 broadcast."""
    padded = (1,) * (len(output) - len(geometry.shape)) + geometry.shape
    still = fixed | {i for i in range(len(output) - 2) if padded[i] == 1}
    return access(argument.name, argument.type, geometry.shape, output, fixed=still)
