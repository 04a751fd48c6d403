"""The kernel of functions that TFLite evaluates in a table."""

from __future__ import annotations

from tflgpu.kernels.architecture import PORTABLE
from tflgpu.kernels.items import item_kernel
from tflgpu.kernels.kernel import Kernel
from tflgpu.kernels.request import Request
from tflgpu.ops.arithmetic.lookup import Lookup


@PORTABLE.lowering("lookup")
def lookup_kernel(request: Request) -> Kernel:
    """A work-item computes a vec4 of the output."""
    attributes, source = request.node.attributes, request.operand("src", 0)
    assert isinstance(attributes, Lookup)
    parameters = {"src": source, "scale": attributes.scale, "zero": attributes.zero, "dirty": True}
    arguments = source, request.operand("table", 1)
    return item_kernel(request, "movement/lookup", parameters, arguments, 40, value_type="int")
