"""Fully connected layers on CPUs, and convolutions that are such layers."""

from __future__ import annotations

from tflgpu.graph.layout import LANES
from tflgpu.kernels.convolutions import bias_argument, is_vector_product
from tflgpu.kernels.cpu import CPU, VECTOR
from tflgpu.kernels.cpu.convolution_kernels import blocks_per_tile, vectors_in_registers
from tflgpu.kernels.kernel import Kernel
from tflgpu.kernels.packing import pack_dense
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import tile_count

MOST_ROWS = 8  # of a block: more would only make the source longer


@CPU.lowering("convolution", when=is_vector_product)
@CPU.lowering("fully_connected")
def fully_connected(request: Request) -> Kernel:
    source, g = request.input(0).geometry, request.output.geometry
    weights = request.constant(1).reshape(g.channels, -1)
    out, depth = weights.shape
    vectors = min(4, tile_count(out, VECTOR))
    blocks = tile_count(out, vectors * VECTOR)
    # Beside the sums of each image of a block are the weights of an input.
    most = max(1, (vectors_in_registers(request.target) - vectors) // vectors)
    rows = tile_count(g.batch, tile_count(g.batch, min(most, MOST_ROWS)))
    row_blocks = tile_count(g.batch, rows)
    per_tile = blocks_per_tile(row_blocks, blocks, 2 * rows * vectors * VECTOR * depth, request.target)
    chunks = tile_count(row_blocks, per_tile)
    packed = pack_dense(weights[:, None, None, :], vectors * VECTOR, source.slices * LANES)
    return Kernel(
        "cpu/fully_connected",
        {
            "vectors": vectors,
            "rows": rows,
            "blocks_per_tile": per_tile,
            "chunks": chunks,
            "images": g.batch,
            "src": request.input(0),
            "weights_type": request.target.storage,
            "factor_type": request.factor_type(request.input(0).type, request.target.storage),
        },
        (
            request.activation("src", 0),
            request.weights("weights", packed),
            bias_argument(request, blocks * vectors * VECTOR),
        ),
        tiles=chunks * blocks,
        local_size=1,
        macs=g.batch * out * depth,
    )
