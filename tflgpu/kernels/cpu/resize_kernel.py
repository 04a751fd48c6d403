"""Resizing on CPUs, row by row."""

from __future__ import annotations

from tflgpu.graph.layout import LANES
from tflgpu.kernels.cpu import CPU
from tflgpu.kernels.kernel import Kernel
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import items_per_tile, tile_count
from tflgpu.ops.image.resize import Resize

OPERATIONS = 6 * LANES  # of a vec4: three interpolations


@CPU.lowering("resize_bilinear")
def resize_rows(request: Request) -> Kernel:
    attributes, g = request.node.attributes, request.output.geometry
    assert isinstance(attributes, Resize)
    rows = items_per_tile(g.height * g.batch, request.target, OPERATIONS * g.width * g.slices)
    rows = min(g.height, rows)
    chunks = tile_count(g.height, rows)
    return Kernel(
        "cpu/resize_rows",
        {
            "scale": attributes.scale,
            "offset": attributes.offset,
            "chunks": chunks,
            "rows_per_tile": rows,
            "src": request.input(0),
        },
        (request.activation("src", 0),),
        tiles=g.batch * chunks,
        local_size=1,
    )
