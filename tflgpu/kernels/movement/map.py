"""The kernel of elementwise nodes, which has nothing but an epilogue."""

from __future__ import annotations

from tflgpu.kernels.access import access
from tflgpu.kernels.architecture import PORTABLE
from tflgpu.kernels.items import item_kernel
from tflgpu.kernels.kernel import Kernel
from tflgpu.kernels.request import Request


@PORTABLE.lowering("map")
def map_kernel(request: Request) -> Kernel:
    g, source = request.output.geometry, request.operand("src", 0)
    linear = source.tensor is not None and request.input(0).linear
    primary = access("src", source.type, request.shape(0).shape, g.shape, linear=linear)
    pixels = 4 if request.target.family == "cpu" else 1
    items = g.batch * g.slices * (g.plane // pixels + g.plane % pixels)
    parameters = {"primary": primary, "pixels": pixels, "dirty": primary.splat}
    cost = 4 * pixels * (1 + len(request.node.epilogue))
    return item_kernel(request, "movement/map", parameters, [source], cost, items=items, value_type=primary.vector)
