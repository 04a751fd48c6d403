"""Depthwise and transposed convolutions of any window."""

from __future__ import annotations

from math import prod

from tflgpu.graph.layout import LANES
from tflgpu.kernels.architecture import PORTABLE
from tflgpu.kernels.convolutions import bias_argument, depthwise_arguments, runtime_weights
from tflgpu.kernels.kernel import Kernel
from tflgpu.kernels.packing import RUNTIME_BLOCK, pack_dense
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import items_per_tile, tile_count
from tflgpu.ops.image.convolution import Depthwise, TransposeConvolution


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


@PORTABLE.lowering("transpose_convolution")
def transpose_convolution(request: Request) -> Kernel:
    attributes, constant, target = request.node.attributes, request.value(1), request.target
    assert isinstance(attributes, TransposeConvolution)
    g, source = request.output.geometry, request.input(0).geometry
    slices_out = min(4 if target.family == "cpu" else 2, g.slices) if constant is not None else RUNTIME_BLOCK // LANES
    blocks = tile_count(g.slices, slices_out)
    block = slices_out * LANES
    if constant is None:
        weights = runtime_weights(request)
    else:
        weights = request.weights("weights", pack_dense(constant, block, source.slices * LANES))
    macs = source.pixels * g.channels * prod(attributes.window.kernel) * source.channels
    items = g.batch * blocks * g.plane
    per_tile = items_per_tile(items, target, 2 * macs // items)
    return Kernel(
        "portable/transpose_convolution",
        {
            "window": attributes.window,
            "slices_out": slices_out,
            "out_blocks": blocks,
            "per_tile": per_tile,
            "src": request.input(0),
            "weights_type": weights.type,
            "factor_type": request.factor_type(request.input(0).type, weights.type),
        },
        (
            request.activation("src", 0),
            weights,
            bias_argument(request, blocks * block),
        ),
        tiles=tile_count(items, per_tile),
        local_size=target.local_size,
        macs=macs,
    )
