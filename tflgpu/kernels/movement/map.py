"""The kernel of elementwise nodes, which has nothing but an epilogue."""

from __future__ import annotations

from tflgpu.kernels.access import access
from tflgpu.kernels.architecture import PORTABLE
from tflgpu.kernels.kernel import Kernel
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import items_per_tile, tile_count


@PORTABLE.lowering("map")
def map_kernel(request: Request) -> Kernel:
    target, g, source = request.target, request.output.geometry, request.operand("src", 0)
    linear = source.tensor is not None and request.input(0).linear
    primary = access("src", source.type, request.shape(0).shape, g.shape, linear=linear)
    pixels = 4 if target.family == "cpu" else 1
    items = g.batch * g.slices * (g.plane // pixels + g.plane % pixels)
    per_tile = items_per_tile(items, target, 4 * pixels * (1 + len(request.node.epilogue)))
    return Kernel(
        "movement/map",
        {"primary": primary, "pixels": pixels, "per_tile": per_tile, "dirty": primary.splat},
        (source,),
        tiles=tile_count(items, per_tile),
        local_size=target.local_size,
        value_type=primary.vector,
    )
