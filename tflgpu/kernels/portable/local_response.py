"""The kernel of LOCAL_RESPONSE_NORMALIZATION."""

from __future__ import annotations

from tflgpu.kernels.architecture import PORTABLE
from tflgpu.kernels.kernel import Kernel
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import items_per_tile, tile_count
from tflgpu.ops.arithmetic.normalization import LocalResponse


@PORTABLE.lowering("local_response")
def local_response_kernel(request: Request) -> Kernel:
    attributes, g = request.node.attributes, request.output.geometry
    assert isinstance(attributes, LocalResponse)
    per_tile = items_per_tile(g.vec4s, request.target, 4 * (2 * attributes.radius + 40))
    return Kernel(
        "portable/local_response",
        {
            "radius": attributes.radius,
            "bias": attributes.bias,
            "alpha": attributes.alpha,
            "power": -attributes.beta,
            "per_tile": per_tile,
            "src": request.input(0),
            "dirty": True,  # a power of no bias at all is infinite
        },
        (request.activation("src", 0),),
        tiles=tile_count(g.vec4s, per_tile),
        local_size=request.target.local_size,
    )
