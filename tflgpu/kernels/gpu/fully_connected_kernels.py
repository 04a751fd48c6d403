"""Fully connected layers on GPUs: a work-group computes one vec4 of the result, its work-items share K.

Where local memory does not hold a sum of each work-item, a group is one work-item.
"""

from __future__ import annotations

from tflgpu.graph.layout import LANES
from tflgpu.kernels.convolutions import bias_argument, is_vector_product
from tflgpu.kernels.gpu import GPU
from tflgpu.kernels.kernel import Kernel
from tflgpu.kernels.packing import pack_dense
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import fits_local


@GPU.lowering("convolution", when=is_vector_product)
@GPU.lowering("fully_connected")
def fully_connected(request: Request) -> Kernel:
    source, g, target = request.input(0).geometry, request.output.geometry, request.target
    local_size = target.local_size if fits_local(target, target.local_size) else 1
    weights = request.constant(1).reshape(g.channels, -1)
    out, depth = weights.shape
    packed = pack_dense(weights[:, None, None, :], LANES, source.slices * LANES)
    return Kernel(
        "gpu/fully_connected",
        {
            "src": request.input(0),
            "weights_type": request.target.storage,
            "factor_type": request.factor_type(request.input(0).type, request.target.storage),
        },
        (
            request.activation("src", 0),
            request.weights("weights", packed),
            bias_argument(request, g.slices * LANES),
        ),
        tiles=g.batch * g.slices,
        local_size=local_size,
        workspace=local_size if local_size > 1 else 0,
        macs=g.batch * out * depth,
    )
