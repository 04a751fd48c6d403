"""Fully connected layers on CPUs, and convolutions that are such layers."""

from __future__ import annotations

from tflgpu.graph.layout import LANES
from tflgpu.kernels.convolutions import (
    bias_argument,
    is_vector_product,
)
from tflgpu.kernels.cpu import CPU, VECTOR
from tflgpu.kernels.kernel import Kernel
from tflgpu.kernels.packing import pack_dense
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import tile_count


@CPU.lowering("convolution", when=is_vector_product)
@CPU.lowering("fully_connected")
def fully_connected(request: Request) -> Kernel:
    source, g = request.input(0).geometry, request.output.geometry
    weights = request.constant(1).reshape(g.channels, -1)
    out, depth = weights.shape
    vectors = min(4, tile_count(out, VECTOR))
    blocks = tile_count(out, vectors * VECTOR)
    packed = pack_dense(weights[:, None, None, :], vectors * VECTOR, source.slices * LANES)
    return Kernel(
        "cpu/fully_connected",
        {
            "vectors": vectors,
            "out_blocks": blocks,
            "src": request.input(0),
            "weights_type": request.target.storage,
            "factor_type": request.factor_type(request.input(0).type, request.target.storage),
        },
        (
            request.activation("src", 0),
            request.weights("weights", packed),
            bias_argument(request, blocks * vectors * VECTOR),
        ),
        tiles=g.batch * blocks,
        local_size=1,
        macs=g.batch * out * depth,
    )
