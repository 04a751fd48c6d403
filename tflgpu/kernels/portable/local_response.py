"""The kernel of LOCAL_RESPONSE_NORMALIZATION."""

from __future__ import annotations

from tflgpu.kernels.architecture import PORTABLE
from tflgpu.kernels.items import item_kernel
from tflgpu.kernels.kernel import Kernel
from tflgpu.kernels.request import Request
from tflgpu.ops.arithmetic.normalization import LocalResponse


@PORTABLE.lowering("local_response")
def local_response_kernel(request: Request) -> Kernel:
    attributes = request.node.attributes
    assert isinstance(attributes, LocalResponse)
    parameters = {
        "radius": attributes.radius,
        "bias": attributes.bias,
        "alpha": attributes.alpha,
        "power": -attributes.beta,
        "src": request.input(0),
        "dirty": True,  # a power of no bias at all is infinite
    }
    cost = 4 * (2 * attributes.radius + 40)
    return item_kernel(request, "portable/local_response", parameters, [request.activation("src", 0)], cost)
