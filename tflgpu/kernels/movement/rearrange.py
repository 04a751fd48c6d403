"""Kernels of transposes, slices and padding: gathers whose coordinates are those of the output, shifted and scaled."""

from __future__ import annotations

from tflgpu.kernels.architecture import PORTABLE
from tflgpu.kernels.items import ItemParameters, item_kernel
from tflgpu.kernels.kernel import Kernel
from tflgpu.kernels.movement.gather_kernel import gather_parameters
from tflgpu.kernels.request import Request
from tflgpu.ops.movement.indexing import Digit, Gather, Position
from tflgpu.ops.movement.shaping import Rearrange


def copy_kernel(request: Request, parameters: ItemParameters) -> Kernel:
    """Return a kernel of one input, ``src``, whose items are vec4s of the output."""
    return item_kernel(request, parameters, [request.activation("src", 0)], 30, value_type=request.input(0).vector)


@PORTABLE.lowering("rearrange", reads_grids=True)
def rearrange_kernel(request: Request) -> Kernel:
    """Return a transpose, slice or padding whose work-items each move a vec4 of the output."""
    attributes = request.attributes(Rearrange)
    positions = (Position(() if m.axis is None else (Digit(m.axis, m.step),), m.start) for m in attributes.axes)
    gather = Gather(tuple(positions), attributes.fill)
    return copy_kernel(request, gather_parameters(request, gather, [request.activation("src", 0)]))
