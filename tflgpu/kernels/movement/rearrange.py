"""Kernels of transposes, slices and padding: gathers whose coordinates are those of the output, shifted and scaled."""

from __future__ import annotations

from tflgpu.graph.layout import LANES
from tflgpu.kernels.access import coordinates
from tflgpu.kernels.architecture import PORTABLE
from tflgpu.kernels.items import ItemParameters, item_kernel
from tflgpu.kernels.kernel import Kernel
from tflgpu.kernels.movement.gather_kernel import GatherParameters, SourceAxis, digit_term
from tflgpu.kernels.request import Request
from tflgpu.ops.movement.gather import Digit
from tflgpu.ops.movement.shaping import AxisMap, Rearrange


def copy_kernel(request: Request, parameters: ItemParameters) -> Kernel:
    """A kernel of one input, ``src``, whose items are vec4s of the output."""
    return item_kernel(request, parameters, [request.activation("src", 0)], 30, value_type=request.input(0).vector)


@PORTABLE.lowering("rearrange", reads_grids=True)
def rearrange_kernel(request: Request) -> Kernel:
    """A transpose, slice or padding whose work-items each move a vec4 of the output."""
    attributes, source, shape = request.attributes(Rearrange), request.input(0).geometry, request.output.geometry.shape
    places = coordinates(shape)
    axes = [
        SourceAxis(m.start, () if m.axis is None else (digit_term(Digit(m.axis, m.step), places),), size, stride)
        for m, size, stride in zip(attributes.axes, source.shape, (*source.axis_strides, 0), strict=True)
    ]
    last, size = attributes.axes[-1] if axes else AxisMap(None), source.channels
    whole_vec4s = last.axis == len(shape) - 1 and last.step == 1 and last.start % LANES == 0
    if attributes.fill:  # a vec4 at the end of the input mixes channels with padding, which is not the fill value
        whole_vec4s &= last.start == 0 and shape[-1] == size
    parameters = GatherParameters(
        axes=axes or [SourceAxis(0, (), 1, 0)],
        fill=attributes.fill or 0,
        background=None,
        bounded=attributes.fill is not None,
        whole_vec4s=whole_vec4s,
        source=request.activation("src", 0),
        plane=source.plane,
        dirty=True,
    )
    return copy_kernel(request, parameters)
