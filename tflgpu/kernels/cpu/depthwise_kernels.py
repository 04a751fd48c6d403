"""Depthwise convolutions on CPUs: whole rows, with taps and weights in registers."""

from __future__ import annotations

from math import prod

from tflgpu.graph.layout import LANES
from tflgpu.kernels.convolutions import (
    depthwise_arguments,
    has_unrolled_taps,
)
from tflgpu.kernels.cpu import CPU
from tflgpu.kernels.kernel import Kernel
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import items_per_tile, tile_count
from tflgpu.ops.image.convolution import Depthwise


@CPU.lowering("depthwise", when=has_unrolled_taps)
def depthwise_rows(request: Request) -> Kernel:
    attributes, dst = request.node.attributes, request.output
    assert isinstance(attributes, Depthwise)
    taps = prod(attributes.window.kernel)
    g = dst.geometry
    rows = items_per_tile(g.height * g.slices * g.batch, request.target, 2 * taps * LANES * g.width)
    rows = min(g.height, rows)
    chunks = tile_count(g.height, rows)
    arguments = depthwise_arguments(request)
    parameters = {
        "window": attributes.window,
        "chunks": chunks,
        "rows_per_tile": rows,
        "src": request.input(0),
        "weights_type": arguments[1].type,
        "factor_type": request.factor_type(arguments[0].type, arguments[1].type),
    }
    tiles = g.batch * g.slices * chunks
    macs = taps * g.pixels * g.channels
    return Kernel("cpu/depthwise_rows", parameters, arguments, tiles, local_size=1, macs=macs)
