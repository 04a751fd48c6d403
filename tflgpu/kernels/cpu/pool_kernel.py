"""Pooling without padding on CPUs, row by row."""

from __future__ import annotations

from math import prod

from tflgpu.kernels.cpu import CPU
from tflgpu.kernels.kernel import Kernel
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import items_per_tile, tile_count
from tflgpu.ops.image.pooling import Pool

OPERATIONS = 16  # of a vec4 that is read: loading it takes longer than what is computed


def _has_no_padding(request: Request) -> bool:
    attributes = request.node.attributes
    return isinstance(attributes, Pool) and not any(attributes.window.padding)


@CPU.lowering("pool", when=_has_no_padding)
def pool_rows(request: Request) -> Kernel:
    attributes, g = request.node.attributes, request.output.geometry
    assert isinstance(attributes, Pool)
    cost = OPERATIONS * prod(attributes.window.kernel) * g.width
    rows = g.height * g.slices * g.batch
    per_tile = items_per_tile(rows, request.target, cost)
    return Kernel(
        "cpu/pool_rows",
        {
            "function": attributes.function,
            "window": attributes.window,
            "rows_per_tile": per_tile,
            "src": request.input(0),
        },
        (request.activation("src", 0),),
        tiles=tile_count(rows, per_tile),
        local_size=1,
        takes_sizes=True,
    )
