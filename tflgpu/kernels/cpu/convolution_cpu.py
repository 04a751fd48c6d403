"""Convolutions and fully connected layers on CPUs."""

from __future__ import annotations

from math import prod

from tflgpu.graph.layout import LANES
from tflgpu.kernels.gpu.convolution_gpu import UNROLLED_TAPS
from tflgpu.kernels.kernel import Argument, Kernel
from tflgpu.kernels.lowering import lowering
from tflgpu.kernels.packing import pack_dense
from tflgpu.kernels.portable.convolution import depthwise
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import items_per_tile, tile_count
from tflgpu.kernels.weights import bias_of, convolution_macs, depthwise_arguments, is_vector_product, packed_weights
from tflgpu.ops.image.convolution import Convolution, Depthwise

VECTOR = 16  # lanes of the CPU's widest float vectors

# Pixels of a CPU block by its vectors of output channels: the accumulators and the weights of one input channel
# stay in registers, of which AVX-512 has 32. The first are good, and quick to compile.
CPU_PIXELS = {1: (8, 12, 16, 6, 4), 2: (6, 12, 8, 10, 4)}


@lowering("convolution", "cpu")
def convolution_cpu(request: Request) -> Kernel:
    if is_vector_product(request):
        return fully_connected_cpu(request)
    attributes = request.node.attributes
    assert isinstance(attributes, Convolution)
    src, g, window = request.input(0), request.output.geometry, attributes.window
    runtime = request.value(1) is None
    vectors = 2 if attributes.groups == 1 and g.channels % (2 * VECTOR) == 0 and not runtime else 1
    # Where output pixels read just their own place, the image is one long row.
    flat = window.is_pointwise and not src.linear
    height, width = (1, g.plane) if flat else (g.height, g.width)
    widths = dict.fromkeys(_pixels_per_block(width, wanted) for wanted in CPU_PIXELS[vectors])
    (pixels,) = request.choose([(n,) for n in widths])
    block = vectors * VECTOR
    weights = packed_weights(request, block)
    per_row = tile_count(width, pixels)
    pixel_blocks = per_row * height
    cost = 2 * pixels * block * prod(window.kernel) * weights.read.slices * LANES
    per_tile = _blocks_per_tile(pixel_blocks, weights.blocks * g.batch, cost, request.target.compute_units)
    chunks = tile_count(pixel_blocks, per_tile)
    return Kernel(
        "cpu/convolution",
        {
            "window": window,
            "vectors": vectors,
            "pixels": pixels,
            "slices": weights.read.slices,
            "first_slice": weights.read.expression,
            "out_blocks": weights.blocks,
            "chunks": chunks,
            "blocks_per_tile": per_tile,
            "rows": {"height": height, "width": width},
            "src": src,
            "weights_type": weights.argument.type,
        },
        (
            request.activation("src", 0),
            weights.argument,
            Argument("bias", "float", None, bias_of(request, weights.blocks * block)),
        ),
        tiles=g.batch * chunks * weights.blocks,
        local_size=1,
        macs=convolution_macs(request),
    )


def _pixels_per_block(width: int, wanted: int) -> int:
    """A block width near ``wanted`` that leaves the smallest remainder in a row."""
    if width <= wanted + 2:
        return width
    return min(range(max(1, wanted - 2), wanted + 1), key=lambda n: (-width % n, -n))


def _blocks_per_tile(pixel_blocks: int, others: int, cost: int, compute_units: int) -> int:
    """Pixel blocks of one tile: enough work to be worth starting, enough tiles to share out evenly."""
    enough = max(1, 400_000 // cost)
    balanced = max(1, pixel_blocks * others // (compute_units * 12))
    return min(pixel_blocks, max(enough, balanced))


@lowering("depthwise", "cpu")
def depthwise_cpu(request: Request) -> Kernel:
    attributes, dst = request.node.attributes, request.output
    assert isinstance(attributes, Depthwise)
    taps = prod(attributes.window.kernel)
    if attributes.multiplier > 1 or taps > UNROLLED_TAPS:
        return depthwise(request)
    g = dst.geometry
    rows = items_per_tile(g.height * g.slices * g.batch, request.target, 2 * taps * LANES * g.width)
    rows = min(g.height, rows)
    chunks = tile_count(g.height, rows)
    arguments = depthwise_arguments(request)
    parameters = {
        "window": attributes.window,
        "chunks": chunks,
        "rows_per_tile": rows,
        "src": request.input(0),
        "weights_type": arguments[1].type,
    }
    tiles = g.batch * g.slices * chunks
    macs = taps * g.pixels * g.channels
    return Kernel("cpu/depthwise_rows", parameters, arguments, tiles, local_size=1, macs=macs)


@lowering("fully_connected", "cpu")
def fully_connected_cpu(request: Request) -> Kernel:
    source, g = request.input(0).geometry, request.output.geometry
    weights = request.constant(1).reshape(g.channels, -1)
    out, depth = weights.shape
    vectors = min(4, tile_count(out, VECTOR))
    blocks = tile_count(out, vectors * VECTOR)
    packed = pack_dense(weights[:, None, None, :], vectors * VECTOR, source.slices * LANES)
    return Kernel(
        "cpu/fully_connected",
        {"vectors": vectors, "out_blocks": blocks, "src": request.input(0), "weights_type": request.target.storage},
        (
            request.activation("src", 0),
            request.weights("weights", packed),
            Argument("bias", "float", None, bias_of(request, blocks * vectors * VECTOR)),
        ),
        tiles=g.batch * blocks,
        local_size=1,
        macs=g.batch * out * depth,
    )
