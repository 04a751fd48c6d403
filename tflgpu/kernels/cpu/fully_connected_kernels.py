"""Fully connected layers on CPUs, and convolutions that are such layers."""

from __future__ import annotations

from dataclasses import dataclass

from tflgpu.graph.layout import LANES
from tflgpu.kernels.convolutions import bias_argument, is_vector_product
from tflgpu.kernels.cpu import CPU, VECTOR
from tflgpu.kernels.cpu.block_products import BlockProductsParameters, blocks_per_tile, rows_in_registers, step_cycles
from tflgpu.kernels.kernel import Argument, Kernel, Storage
from tflgpu.kernels.packing import pack_dense
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import tile_count
from tflgpu.target import ElementType, Target

MOST_VECTORS = 8  # of a block: more would only make the source longer

PART = 256  # floats of each row of a block: 8 KiB, a sixth of the smallest cache of a core


@dataclass(frozen=True, kw_only=True)
class FullyConnectedParameters(BlockProductsParameters, template="cpu/fully_connected"):
    """Parameters of ``templates/cpu/fully_connected.cl.j2``."""

    part: int
    chunks: int
    images: int
    src: Storage
    weights_type: ElementType


@CPU.lowering("convolution", when=is_vector_product)
@CPU.lowering("fully_connected")
def fully_connected(request: Request) -> Kernel:
    """A fully connected layer in blocks of rows by vectors of 16 outputs."""
    source, g = request.input(0).geometry, request.output.geometry
    weights = request.constant(1).reshape(g.channels, -1)
    out, depth = weights.shape
    vectors, rows = _block(out, g.batch, request.target)
    blocks = tile_count(out, vectors * VECTOR)
    row_blocks = tile_count(g.batch, rows)
    per_tile = blocks_per_tile(row_blocks, blocks, 2 * rows * vectors * VECTOR * depth, request.target)
    chunks = tile_count(row_blocks, per_tile)
    packed = pack_dense(weights[:, None, None, :], vectors * VECTOR, source.slices * LANES)
    src, storage = request.input(0), request.target.storage
    factor_type = request.factor_type(src.type, storage)
    # What many blocks use is converted once, here.
    weights_type = storage if row_blocks == 1 else factor_type
    return Kernel(
        FullyConnectedParameters(
            rows=rows,
            slices_out=vectors * VECTOR // LANES,
            blocks_per_tile=per_tile,
            part=min(PART, tile_count(depth, VECTOR) * VECTOR),
            chunks=chunks,
            images=g.batch,
            src=src,
            weights_type=weights_type,
            factor_type=factor_type,
        ),
        (
            request.activation("src", 0),
            Argument("weights", weights_type, data=packed),
            bias_argument(request, blocks * vectors * VECTOR),
        ),
        tiles=chunks * blocks,
        local_size=1,
        macs=g.batch * out * depth,
    )


def _block(out: int, images: int, target: Target) -> tuple[int, int]:
    """Vectors of outputs and images of the blocks that take the least time."""

    def cost(vectors: int) -> float:
        rows = rows_in_registers(images, vectors, target)
        blocks = tile_count(out, vectors * VECTOR) * tile_count(images, rows)
        return tile_count(blocks, target.compute_units) * step_cycles(rows, vectors, target)

    vectors = min(range(1, min(MOST_VECTORS, tile_count(out, VECTOR)) + 1), key=cost)
    return vectors, rows_in_registers(images, vectors, target)
