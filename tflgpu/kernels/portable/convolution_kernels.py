"""Depthwise convolutions of any window."""

from __future__ import annotations

from math import prod

from tflgpu.graph.layout import LANES
from tflgpu.kernels.architecture import PORTABLE
from tflgpu.kernels.convolutions import depthwise_arguments
from tflgpu.kernels.items import item_kernel
from tflgpu.kernels.kernel import Kernel
from tflgpu.kernels.request import Request
from tflgpu.ops.image.convolution import Depthwise


@PORTABLE.lowering("depthwise")
def depthwise(request: Request) -> Kernel:
    """For every window and channel multiplier."""
    attributes, g = request.node.attributes, request.output.geometry
    assert isinstance(attributes, Depthwise)
    taps = prod(attributes.window.kernel)
    arguments = depthwise_arguments(request)
    parameters = {
        "window": attributes.window,
        "multiplier": attributes.multiplier,
        "src": request.input(0),
        "weights_type": arguments[1].type,
        "factor_type": request.factor_type(arguments[0].type, arguments[1].type),
    }
    cost, macs = 2 * taps * LANES, taps * g.pixels * g.channels
    return item_kernel(request, "portable/depthwise", parameters, arguments, cost, macs=macs)
