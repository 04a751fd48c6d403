"""Convolutions on CPUs: register blocks of pixels by output channels."""

from __future__ import annotations

from math import prod

from tflgpu.graph.layout import LANES
from tflgpu.kernels.convolutions import (
    bias_argument,
    convolution_macs,
    packed_weights,
)
from tflgpu.kernels.cpu import CPU, VECTOR
from tflgpu.kernels.kernel import Kernel
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import most_per_tile, tile_count
from tflgpu.ops.image.convolution import Convolution
from tflgpu.target import Target

# Pixels of a block by its vectors of output channels: the accumulators and the weights of one input channel stay in
# registers, of which AVX-512 has 32. The first are good, and quick to compile; the others are for tuning.
PIXELS = {1: (8, 12, 16, 6, 4), 2: (6, 12, 8, 10, 4)}

# Floating-point operations of a tile that are worth starting it, and tiles for each core. Round numbers, not fitted.
WORTHWHILE_OPERATIONS = 400_000
TILES_PER_CORE = 12


@CPU.lowering("convolution")
def convolution(request: Request) -> Kernel:
    attributes = request.node.attributes
    assert isinstance(attributes, Convolution)
    src, g, window = request.input(0), request.output.geometry, attributes.window
    runtime = request.value(1) is None
    vectors = 2 if attributes.groups == 1 and g.channels % (2 * VECTOR) == 0 and not runtime else 1
    # Where output pixels read just their own place, the image is one long row.
    flat = window.is_pointwise and not src.linear
    height, width = (1, g.plane) if flat else (g.height, g.width)
    widths = dict.fromkeys(pixels_per_block(width, wanted) for wanted in PIXELS[vectors])
    (pixels,) = request.choose([(n,) for n in widths])
    block = vectors * VECTOR
    weights = packed_weights(request, block)
    per_row = tile_count(width, pixels)
    pixel_blocks = per_row * height
    cost = 2 * pixels * block * prod(window.kernel) * weights.read.slices * LANES
    per_tile = _blocks_per_tile(pixel_blocks, weights.blocks * g.batch, cost, request.target)
    chunks = tile_count(pixel_blocks, per_tile)
    return Kernel(
        "cpu/convolution",
        {
            "window": window,
            "vectors": vectors,
            "pixels": pixels,
            "slices": weights.read.slices,
            "first_slice": weights.read.expression,
            "groups": weights.groups,
            "out_blocks": weights.blocks,
            "chunks": chunks,
            "blocks_per_tile": per_tile,
            "rows": {"height": height, "width": width},
            "src": src,
            "weights_type": weights.argument.type,
            "factor_type": request.factor_type(src.type, weights.argument.type),
        },
        (
            request.activation("src", 0),
            weights.argument,
            bias_argument(request, weights.blocks * block),
        ),
        tiles=g.batch * chunks * weights.blocks,
        local_size=1,
        macs=convolution_macs(request),
    )


def pixels_per_block(width: int, wanted: int) -> int:
    """A block width near ``wanted`` that leaves the smallest remainder in a row."""
    if width <= wanted + 2:
        return width
    return min(range(max(1, wanted - 2), wanted + 1), key=lambda n: (-width % n, -n))


def _blocks_per_tile(pixel_blocks: int, others: int, cost: int, target: Target) -> int:
    """Pixel blocks of one tile: enough work to be worth starting, enough tiles to share out evenly."""
    enough = max(1, WORTHWHILE_OPERATIONS // cost)
    balanced = max(1, pixel_blocks * others // (target.compute_units * TILES_PER_CORE))
    return min(pixel_blocks, max(enough, balanced), most_per_tile(target, cost))
