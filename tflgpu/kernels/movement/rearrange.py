"""Kernels of transposes, slices and padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tflgpu.graph.layout import LANES
from tflgpu.kernels.access import Coordinate, coordinates
from tflgpu.kernels.architecture import PORTABLE
from tflgpu.kernels.items import ItemParameters, item_kernel
from tflgpu.kernels.kernel import Kernel, Storage
from tflgpu.kernels.request import Request
from tflgpu.ops.movement.shaping import Rearrange


def copy_kernel(request: Request, parameters: ItemParameters) -> Kernel:
    """A kernel of one input, ``src``, whose items are vec4s of the output."""
    return item_kernel(request, parameters, [request.activation("src", 0)], 30, value_type=request.input(0).vector)


@dataclass(frozen=True)
class InputAxis:
    """One input axis of a rearrangement, as its template wants it."""

    follows: Coordinate
    start: int
    step: int
    size: int
    stride: int


@dataclass(frozen=True, kw_only=True)
class RearrangeParameters(ItemParameters, template="movement/rearrange"):
    """Parameters of ``templates/movement/rearrange.cl.j2``."""

    axes: Sequence[InputAxis]
    fill: float
    bounded: bool
    whole_vec4s: bool
    src: Storage
    dirty: bool = True


@PORTABLE.lowering("rearrange")
def rearrange_kernel(request: Request) -> Kernel:
    """A transpose, slice or padding whose work-items each move a vec4 of the output."""
    attributes, source, shape = request.node.attributes, request.input(0).geometry, request.output.geometry.shape
    assert isinstance(attributes, Rearrange)
    places, still = coordinates(shape), Coordinate("0")
    axes = [
        InputAxis(still if m.axis is None else places[m.axis], m.start, m.step, size, stride)
        for m, size, stride in zip(attributes.axes, source.shape, (*source.axis_strides, 0), strict=True)
    ]
    last = axes[-1] if axes else InputAxis(still, 0, 1, 1, 0)
    whole_vec4s = last.follows.kind == "c" and last.step == 1 and last.start % LANES == 0
    if attributes.fill:  # a vec4 at the end of the input mixes channels with padding, which is not the fill value
        whole_vec4s &= last.start == 0 and shape[-1] == last.size
    parameters = RearrangeParameters(
        axes=axes or [last],
        fill=attributes.fill or 0,
        bounded=attributes.fill is not None,
        whole_vec4s=whole_vec4s,
        src=request.input(0),
    )
    return copy_kernel(request, parameters)
