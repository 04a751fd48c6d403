"""The kernel of functions that TFLite evaluates in a table."""

from __future__ import annotations

from tflgpu.kernels.architecture import PORTABLE
from tflgpu.kernels.kernel import Kernel
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import items_per_tile, tile_count
from tflgpu.ops.arithmetic.lookup import Lookup


@PORTABLE.lowering("lookup")
def lookup_kernel(request: Request) -> Kernel:
    """A work-item computes a vec4 of the output."""
    attributes, vec4s = request.node.attributes, request.output.geometry.vec4s
    assert isinstance(attributes, Lookup)
    source, per_tile = request.operand("src", 0), items_per_tile(vec4s, request.target, 40)
    parameters = {
        "src": source,
        "scale": attributes.scale,
        "zero": attributes.zero,
        "per_tile": per_tile,
        "dirty": True,
    }
    return Kernel(
        "movement/lookup",
        parameters,
        (source, request.operand("table", 1)),
        tiles=tile_count(vec4s, per_tile),
        local_size=request.target.local_size,
        value_type="int",
    )
