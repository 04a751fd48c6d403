"""Depthwise convolutions of any window."""

from __future__ import annotations

from math import prod

from tflgpu.graph.layout import LANES
from tflgpu.kernels.architecture import PORTABLE
from tflgpu.kernels.convolutions import depthwise_arguments
from tflgpu.kernels.kernel import Kernel
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import items_per_tile, tile_count
from tflgpu.ops.image.convolution import Depthwise


@PORTABLE.lowering("depthwise")
def depthwise(request: Request) -> Kernel:
    """For every window and channel multiplier."""
    attributes, g, target = request.node.attributes, request.output.geometry, request.target
    assert isinstance(attributes, Depthwise)
    taps = prod(attributes.window.kernel)
    per_tile = items_per_tile(g.vec4s, target, 2 * taps * LANES)
    arguments = depthwise_arguments(request)
    parameters = {
        "window": attributes.window,
        "multiplier": attributes.multiplier,
        "per_tile": per_tile,
        "src": request.input(0),
        "weights_type": arguments[1].type,
        "factor_type": request.factor_type(arguments[0].type, arguments[1].type),
    }
    tiles = tile_count(g.vec4s, per_tile)
    macs = taps * g.pixels * g.channels
    return Kernel("portable/depthwise", parameters, arguments, tiles, target.local_size, macs=macs)
