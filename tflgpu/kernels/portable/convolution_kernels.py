"""Depthwise convolutions of any window."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tflgpu.graph.layout import LANES
from tflgpu.kernels.architecture import PORTABLE
from tflgpu.kernels.convolutions import depthwise_arguments
from tflgpu.kernels.items import ItemParameters, item_kernel
from tflgpu.kernels.kernel import Kernel, Storage
from tflgpu.kernels.request import Request
from tflgpu.ops.image.convolution import Depthwise
from tflgpu.ops.image.window import Window
from tflgpu.target import ElementType


@dataclass(frozen=True, kw_only=True)
class DepthwiseParameters(ItemParameters, template="portable/depthwise", stores_once=True):
    """Parameters of ``templates/portable/depthwise.cl.j2``."""

    window: Window
    multiplier: int
    src: Storage
    weights_type: ElementType
    factor_type: ElementType


@PORTABLE.lowering("depthwise", reads_grids=True)
def depthwise(request: Request) -> Kernel:
    """For every window and channel multiplier."""
    attributes, g = request.attributes(Depthwise), request.output.geometry
    taps = prod(attributes.window.kernel)
    arguments = depthwise_arguments(request)
    parameters = DepthwiseParameters(
        window=attributes.window,
        multiplier=attributes.multiplier,
        src=request.input(0),
        weights_type=arguments[1].type,
        factor_type=request.factor_type(arguments[0].type, arguments[1].type),
    )
    cost, macs = 2 * taps * LANES, taps * g.pixels * g.channels
    return item_kernel(request, parameters, arguments, cost, macs=macs)
