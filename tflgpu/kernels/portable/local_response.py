"""The kernel of LOCAL_RESPONSE_NORMALIZATION."""

from __future__ import annotations

from dataclasses import dataclass

from tflgpu.kernels.architecture import PORTABLE
from tflgpu.kernels.items import ItemParameters, item_kernel
from tflgpu.kernels.kernel import Kernel, Storage
from tflgpu.kernels.request import Request
from tflgpu.ops.arithmetic.reduction import LocalResponse


@dataclass(frozen=True, kw_only=True)
class LocalResponseParameters(ItemParameters, template="portable/local_response", stores_once=True):
    """Parameters of ``templates/portable/local_response.cl.j2``."""

    radius: int
    bias: float
    alpha: float
    power: float
    src: Storage
    dirty: bool = True  # a power of no bias at all is infinite


@PORTABLE.lowering("local_response")
def local_response_kernel(request: Request) -> Kernel:
    """Local response normalization of a vec4 of the output."""
    attributes = request.attributes(LocalResponse)
    parameters = LocalResponseParameters(
        radius=attributes.radius,
        bias=attributes.bias,
        alpha=attributes.alpha,
        power=-attributes.beta,
        src=request.input(0),
    )
    cost = 4 * (2 * attributes.radius + 40)
    return item_kernel(request, parameters, [request.activation("src", 0)], cost)
