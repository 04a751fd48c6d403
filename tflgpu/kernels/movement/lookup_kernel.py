"""The kernel of functions of 16 bits, whose results are a table."""

from __future__ import annotations

from dataclasses import dataclass

from tflgpu.kernels.architecture import PORTABLE
from tflgpu.kernels.items import ItemParameters, item_kernel
from tflgpu.kernels.kernel import Argument, Kernel
from tflgpu.kernels.request import Request
from tflgpu.ops.sixteen_bits.lookup import Lookup


@dataclass(frozen=True, kw_only=True)
class LookupParameters(ItemParameters, template="movement/lookup", stores_once=True):
    """Parameters of ``templates/movement/lookup.cl.j2``."""

    src: Argument
    scale: float
    least: float
    dirty: bool = True


@PORTABLE.lowering("lookup", reads_grids=True)
def lookup_kernel(request: Request) -> Kernel:
    """Return a work-item computes a vec4 of the output."""
    attributes, source = request.attributes(Lookup), request.operand("src", 0)
    parameters = LookupParameters(src=source, scale=attributes.scale, least=attributes.least)
    arguments = source, request.operand("table", 1)
    return item_kernel(request, parameters, arguments, 40, value_type="int")
