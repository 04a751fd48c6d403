"""Kernel variants of the convolutions and of fully connected layers, and how each wants its weights packed."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from tflgpu.ir import Array
from tflgpu.layout import LANES, Geometry
from tflgpu.ops.convolution import Convolution, Depthwise, TransposeConvolution
from tflgpu.ops.kernel import Argument, Kernel, Request, items_per_tile, tile_count, variant
from tflgpu.ops.packed_weights import RUNTIME_BLOCK, BlockInputs, block_inputs, pack_dense, pack_grouped

VECTOR = 16  # lanes of the CPU's widest float vectors
# Pixels of a CPU block by its vectors of output channels: the accumulators and the weights of one input channel
# stay in registers, of which AVX-512 has 32.
CPU_PIXELS = {1: 8, 2: 6}
# Pixels and slices of a GPU's block: large ones use each value more often, small ones leave more work-items.
GPU_BLOCKS = ((4, 4), (4, 2), (2, 2), (2, 1), (1, 1))
RUNTIME_GPU_BLOCKS = ((4, RUNTIME_BLOCK // LANES), (1, RUNTIME_BLOCK // LANES))


def _bias(request: Request, channels: int, padded: int) -> Array:
    bias = request.optional_constant(2)
    values = np.zeros(padded, np.float32)
    values[:channels] = 0 if bias is None else bias.reshape(-1)
    return values


@dataclass(frozen=True)
class PackedWeights:
    """Weights as an argument, and which input slices their blocks are for."""

    argument: Argument
    read: BlockInputs

    @property
    def blocks(self) -> int:
        return len(self.read.first)


def _packed_weights(request: Request, block: int) -> PackedWeights:
    """The weights of a convolution node for blocks of ``block`` output channels."""
    attributes, src, weights = request.node.attributes, request.input(0), request.value(1)
    assert isinstance(attributes, Convolution)
    read = block_inputs(request.output.geometry.channels, attributes.groups, block, src.geometry)
    if weights is None:
        return PackedWeights(_runtime_weights(request), read)
    inputs = read.slices * (src.geometry.channels if src.linear else LANES)
    if attributes.groups == 1:
        packed = pack_dense(weights, block, inputs)
    else:
        packed = pack_grouped(weights, attributes.groups, block, read, inputs)
    return PackedWeights(request.weights("weights", packed), read)


def _runtime_weights(request: Request) -> Argument:
    """Weights that ``passes/weights.py`` had packed."""
    assert request.shape(1).shape[1:] == (RUNTIME_BLOCK,), f"the weights of {request.node.kind} are not packed"
    return request.activation("weights", 1)


def _is_vector_product(request: Request) -> bool:
    """Whether a convolution is a fully connected layer: every image is one pixel, and one pixel is all it reads."""
    attributes, src, dst = request.node.attributes, request.input(0), request.output
    assert isinstance(attributes, Convolution)
    pointwise = attributes.window.is_pointwise and attributes.groups == 1 and request.value(1) is not None
    return pointwise and src.geometry.plane == dst.geometry.plane == 1 and not src.linear


def _macs(request: Request) -> int:
    """Multiplications of a convolution node, those with padding included."""
    attributes, g = request.node.attributes, request.output.geometry
    assert isinstance(attributes, Convolution)
    return g.pixels * g.channels * prod(attributes.window.kernel) * request.input(0).channels // attributes.groups


@variant("convolution", "cpu")
def convolution_cpu(request: Request) -> Kernel:
    if _is_vector_product(request):
        return fully_connected_cpu(request)
    attributes = request.node.attributes
    assert isinstance(attributes, Convolution)
    src, g, window = request.input(0), request.output.geometry, attributes.window
    runtime = request.value(1) is None
    vectors = 2 if attributes.groups == 1 and g.channels % (2 * VECTOR) == 0 and not runtime else 1
    block = vectors * VECTOR
    weights = _packed_weights(request, block)
    # Where output pixels read just their own place, the image is one long row.
    flat = window.is_pointwise and not src.linear
    height, width = (1, g.plane) if flat else (g.height, g.width)
    pixels = _pixels_per_block(width, CPU_PIXELS[vectors])
    per_row = tile_count(width, pixels)
    pixel_blocks = per_row * height
    cost = 2 * pixels * block * prod(window.kernel) * weights.read.slices * LANES
    per_tile = _blocks_per_tile(pixel_blocks, weights.blocks * g.batch, cost, request.target.compute_units)
    chunks = tile_count(pixel_blocks, per_tile)
    return Kernel(
        "convolution_cpu",
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
            Argument("bias", "float", None, _bias(request, g.channels, weights.blocks * block)),
        ),
        tiles=g.batch * chunks * weights.blocks,
        local_size=1,
        macs=_macs(request),
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


@variant("convolution", "gpu")
def convolution_gpu(request: Request) -> Kernel:
    if _is_vector_product(request):
        return fully_connected_gpu(request)
    attributes, src, g = request.node.attributes, request.input(0), request.output.geometry
    assert isinstance(attributes, Convolution)
    runtime = request.value(1) is None
    candidates = RUNTIME_GPU_BLOCKS if runtime else tuple(b for b in GPU_BLOCKS if b[1] <= g.slices)
    pixels, slices_out = _gpu_block(g, request.target.compute_units, candidates)
    block = slices_out * LANES
    weights = _packed_weights(request, block)
    items = g.batch * weights.blocks * tile_count(g.plane, pixels)
    return Kernel(
        "convolution_gpu",
        {
            "window": attributes.window,
            "pixels": pixels,
            "slices_out": slices_out,
            "slices": weights.read.slices,
            "first_slice": weights.read.expression,
            "out_blocks": weights.blocks,
            "per_tile": request.target.local_size,
            "src": src,
            "weights_type": weights.argument.type,
        },
        (
            request.activation("src", 0),
            weights.argument,
            Argument("bias", "float", None, _bias(request, g.channels, weights.blocks * block)),
        ),
        tiles=tile_count(items, request.target.local_size),
        local_size=request.target.local_size,
        macs=_macs(request),
    )


def _gpu_block(g: Geometry, compute_units: int, blocks: tuple[tuple[int, int], ...]) -> tuple[int, int]:
    """Pixels and slices of one work-item: the first of ``blocks`` that leaves some warps to every compute unit."""
    for pixels, slices in blocks:
        if g.batch * tile_count(g.plane, pixels) * tile_count(g.slices, slices) >= compute_units * 256:
            return pixels, slices
    return blocks[-1]


def _depthwise_arguments(request: Request) -> tuple[Argument, Argument, Argument]:
    """Image, weights and bias; weights [1, kh, kw, channels] in PHWC4 are what the kernels want."""
    g = request.output.geometry
    bias = _bias(request, g.channels, g.slices * LANES)
    return request.activation("src", 0), request.operand("weights", 1), Argument("bias", "float", None, bias)


@variant("depthwise", "cpu")
def depthwise_cpu(request: Request) -> Kernel:
    attributes, dst = request.node.attributes, request.output
    assert isinstance(attributes, Depthwise)
    taps = prod(attributes.window.kernel)
    if attributes.multiplier > 1 or taps > 25:  # weights of larger windows would not stay in registers
        return depthwise(request)
    g = dst.geometry
    rows = items_per_tile(g.height * g.slices * g.batch, request.target, 2 * taps * LANES * g.width)
    rows = min(g.height, rows)
    chunks = tile_count(g.height, rows)
    arguments = _depthwise_arguments(request)
    parameters = {
        "window": attributes.window,
        "chunks": chunks,
        "rows_per_tile": rows,
        "src": request.input(0),
        "weights_type": arguments[1].type,
    }
    tiles = g.batch * g.slices * chunks
    macs = taps * g.pixels * g.channels
    return Kernel("depthwise_cpu", parameters, arguments, tiles, local_size=1, macs=macs)


@variant("depthwise", "gpu")
def depthwise(request: Request) -> Kernel:
    attributes, g, target = request.node.attributes, request.output.geometry, request.target
    assert isinstance(attributes, Depthwise)
    taps = prod(attributes.window.kernel)
    per_tile = items_per_tile(g.quads, target, 2 * taps * LANES)
    arguments = _depthwise_arguments(request)
    parameters = {
        "window": attributes.window,
        "multiplier": attributes.multiplier,
        "per_tile": per_tile,
        "src": request.input(0),
        "weights_type": arguments[1].type,
    }
    tiles = tile_count(g.quads, per_tile)
    macs = taps * g.pixels * g.channels
    return Kernel("depthwise", parameters, arguments, tiles, target.local_size, macs=macs)


@variant("transpose_convolution")
def transpose_convolution(request: Request) -> Kernel:
    attributes, constant, target = request.node.attributes, request.value(1), request.target
    assert isinstance(attributes, TransposeConvolution)
    g, source = request.output.geometry, request.input(0).geometry
    slices_out = min(4 if target.family == "cpu" else 2, g.slices) if constant is not None else RUNTIME_BLOCK // LANES
    blocks = tile_count(g.slices, slices_out)
    block = slices_out * LANES
    if constant is None:
        weights = _runtime_weights(request)
    else:
        weights = request.weights("weights", pack_dense(constant, block, source.slices * LANES))
    macs = source.pixels * g.channels * prod(attributes.window.kernel) * source.channels
    items = g.batch * blocks * g.plane
    per_tile = items_per_tile(items, target, 2 * macs // items)
    return Kernel(
        "transpose_convolution",
        {
            "window": attributes.window,
            "slices_out": slices_out,
            "out_blocks": blocks,
            "per_tile": per_tile,
            "src": request.input(0),
            "weights_type": weights.type,
        },
        (
            request.activation("src", 0),
            weights,
            Argument("bias", "float", None, _bias(request, g.channels, blocks * block)),
        ),
        tiles=tile_count(items, per_tile),
        local_size=target.local_size,
        macs=macs,
    )


@variant("fully_connected", "cpu")
def fully_connected_cpu(request: Request) -> Kernel:
    source, g = request.input(0).geometry, request.output.geometry
    weights = request.constant(1).reshape(g.channels, -1)
    out, depth = weights.shape
    vectors = min(4, tile_count(out, VECTOR))
    blocks = tile_count(out, vectors * VECTOR)
    packed = pack_dense(weights[:, None, None, :], vectors * VECTOR, source.slices * LANES)
    return Kernel(
        "fully_connected_cpu",
        {"vectors": vectors, "out_blocks": blocks, "src": request.input(0), "weights_type": request.target.storage},
        (
            request.activation("src", 0),
            request.weights("weights", packed),
            Argument("bias", "float", None, _bias(request, out, blocks * vectors * VECTOR)),
        ),
        tiles=g.batch * blocks,
        local_size=1,
        macs=g.batch * out * depth,
    )


@variant("fully_connected", "gpu")
def fully_connected_gpu(request: Request) -> Kernel:
    source, g = request.input(0).geometry, request.output.geometry
    weights = request.constant(1).reshape(g.channels, -1)
    out, depth = weights.shape
    local_size = request.target.local_size
    packed = pack_dense(weights[:, None, None, :], LANES, source.slices * LANES)
    return Kernel(
        "fully_connected_gpu",
        {"src": request.input(0), "weights_type": request.target.storage},
        (
            request.activation("src", 0),
            request.weights("weights", packed),
            Argument("bias", "float", None, _bias(request, out, g.slices * LANES)),
        ),
        tiles=g.batch * g.slices,
        local_size=local_size,
        scratch=local_size,
        macs=g.batch * out * depth,
    )
