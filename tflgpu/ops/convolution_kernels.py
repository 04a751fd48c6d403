"""Kernel variants of the convolutions and of fully connected layers, and how each wants its weights packed."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from tflgpu.ir import Array
from tflgpu.layout import LANES, Geometry
from tflgpu.ops.convolution import Convolution, Depthwise, TransposeConvolution
from tflgpu.ops.kernel import Argument, Kernel, Request, items_per_tile, tile_count, variant

VECTOR = 16  # lanes of the CPU's widest float vectors
# Pixels of a CPU block by its vectors of output channels: the accumulators and the weights of one input channel
# stay in registers, of which AVX-512 has 32.
CPU_PIXELS = {1: 8, 2: 6}


def _bias(request: Request, channels: int, padded: int) -> Array:
    bias = request.optional_constant(2)
    values = np.zeros(padded, np.float32)
    values[:channels] = 0 if bias is None else bias.reshape(-1)
    return values


@dataclass(frozen=True)
class PackedWeights:
    """Weights of a convolution as [block][kh][kw][slice][lane][channel of the block].

    slices: how many input slices every block reads. first_slice: the first of them, a C expression of the block ``ob``.
    """

    data: Array
    blocks: int
    slices: int
    first_slice: str


def _pack(request: Request, block: int) -> PackedWeights:
    """The weights of a convolution node for blocks of ``block`` output channels."""
    attributes, weights, src = request.node.attributes, request.constant(1), request.input(0)
    assert isinstance(attributes, Convolution)
    blocks = tile_count(weights.shape[0], block)
    lanes = src.geometry.channels if src.linear else LANES
    if attributes.groups == 1:
        slices = src.geometry.slices
        return PackedWeights(_dense_weights(weights, blocks, block, slices * lanes), blocks, slices, "0")
    first, slices = _block_inputs(weights, attributes.groups, block, blocks, src.geometry)
    packed = _grouped_weights(weights, attributes.groups, block, first, slices * lanes)
    return PackedWeights(packed, blocks, slices, _first_slice(first))


def _grouped_weights(weights: Array, groups: int, block: int, first: list[int], inputs: int) -> Array:
    """[out, kh, kw, in / groups] -> packed: ``inputs`` channels from slice ``first[b]`` on, zeros for other groups'."""
    out, kh, kw, depth = weights.shape
    packed = np.zeros((len(first), kh, kw, inputs, block), np.float32)
    per_group = out // groups
    for o in range(out):
        b, channel = divmod(o, block)
        begin = o // per_group * depth - first[b] * LANES
        packed[b, :, :, begin : begin + depth, channel] = weights[o]
    return packed


def _dense_weights(weights: Array, blocks: int, block: int, inputs: int) -> Array:
    """[out, kh, kw, in] -> packed, for one group, where whole arrays can be moved at once."""
    out, kh, kw, depth = weights.shape
    packed = np.zeros((blocks * block, kh, kw, inputs), np.float32)
    packed[:out, ..., :depth] = weights
    return np.ascontiguousarray(packed.reshape(blocks, block, kh, kw, inputs).transpose(0, 2, 3, 4, 1))


def _block_inputs(weights: Array, groups: int, block: int, blocks: int, source: Geometry) -> tuple[list[int], int]:
    """The first input slice that each block of output channels reads, and how many slices all of them read."""
    out, depth = weights.shape[0], weights.shape[3]
    per_group = out // groups
    spans = []
    for b in range(blocks):
        low, high = b * block // per_group, (min((b + 1) * block, out) - 1) // per_group
        spans.append((low * depth // LANES, -(-(high + 1) * depth // LANES)))
    count = max(end - begin for begin, end in spans)
    return [min(begin, source.slices - count) for begin, _ in spans], count


def _first_slice(first: list[int]) -> str:
    """A C expression of the tile's block ``ob``: the first input slice it reads."""
    step = first[1] - first[0] if len(first) > 1 else 0
    if first == [step * b for b in range(len(first))]:
        return f"ob * {step}" if step else "0"
    chain = "".join(f"ob == {b} ? {f} : " for b, f in enumerate(first[:-1]))
    return f"({chain}{first[-1]})"


def _is_vector_product(request: Request) -> bool:
    """Whether a convolution is a fully connected layer: every image is one pixel, and one pixel is all it reads."""
    attributes, src, dst = request.node.attributes, request.input(0), request.output
    assert isinstance(attributes, Convolution)
    pointwise = attributes.window.is_pointwise and attributes.groups == 1
    return pointwise and src.geometry.plane == dst.geometry.plane == 1 and not src.linear


@variant("convolution", "cpu")
def convolution_cpu(request: Request) -> Kernel:
    if _is_vector_product(request):
        return fully_connected_cpu(request)
    attributes, weights = request.node.attributes, request.constant(1)
    assert isinstance(attributes, Convolution)
    src, dst = request.input(0), request.output
    g, window, (out, kh, kw, depth) = dst.geometry, attributes.window, weights.shape
    vectors = 2 if attributes.groups == 1 and out % (2 * VECTOR) == 0 else 1
    block = vectors * VECTOR
    packed = _pack(request, block)
    # Where output pixels read just their own place, the image is one long row.
    flat = window.is_pointwise and not src.linear
    height, width = (1, g.plane) if flat else (g.height, g.width)
    pixels = _pixels_per_block(width, CPU_PIXELS[vectors])
    per_row = tile_count(width, pixels)
    macs = g.pixels * out * kh * kw * depth
    pixel_blocks = per_row * height
    cost = 2 * pixels * packed.data[0].size
    per_tile = _blocks_per_tile(pixel_blocks, packed.blocks * g.batch, cost, request.target.compute_units)
    chunks = tile_count(pixel_blocks, per_tile)
    return Kernel(
        "convolution_cpu",
        {
            "window": window,
            "vectors": vectors,
            "pixels": pixels,
            "slices": packed.slices,
            "first_slice": packed.first_slice,
            "out_blocks": packed.blocks,
            "chunks": chunks,
            "blocks_per_tile": per_tile,
            "rows": {"height": height, "width": width},
            "src": src,
            "weights_type": request.target.storage,
        },
        (
            request.activation("src", 0),
            request.weights("weights", packed.data),
            Argument("bias", "float", None, _bias(request, out, packed.blocks * block)),
        ),
        tiles=g.batch * chunks * packed.blocks,
        local_size=1,
        macs=macs,
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
    attributes, weights = request.node.attributes, request.constant(1)
    assert isinstance(attributes, Convolution)
    src, dst = request.input(0), request.output
    g, (out, kh, kw, depth) = dst.geometry, weights.shape
    pixels, slices_out = _gpu_block(g, request.target.compute_units)
    block = slices_out * LANES
    packed = _pack(request, block)
    items = g.batch * packed.blocks * tile_count(g.plane, pixels)
    return Kernel(
        "convolution_gpu",
        {
            "window": attributes.window,
            "pixels": pixels,
            "slices_out": slices_out,
            "slices": packed.slices,
            "first_slice": packed.first_slice,
            "out_blocks": packed.blocks,
            "per_tile": request.target.local_size,
            "src": src,
            "weights_type": request.target.storage,
        },
        (
            request.activation("src", 0),
            request.weights("weights", packed.data),
            Argument("bias", "float", None, _bias(request, out, packed.blocks * block)),
        ),
        tiles=tile_count(items, request.target.local_size),
        local_size=request.target.local_size,
        macs=g.pixels * out * kh * kw * depth,
    )


def _gpu_block(g: Geometry, compute_units: int) -> tuple[int, int]:
    """Pixels and slices of one work-item: the largest block that still leaves some warps to every compute unit."""
    for pixels, slices in ((4, 4), (4, 2), (2, 2), (2, 1)):
        if (
            slices <= g.slices
            and g.batch * tile_count(g.plane, pixels) * tile_count(g.slices, slices) >= compute_units * 256
        ):
            return pixels, slices
    return 1, 1


def _depthwise_arguments(request: Request) -> tuple[Argument, ...]:
    weights, channels = request.constant(1), request.output.geometry.channels
    slices, (_, kh, kw, _) = request.output.geometry.slices, weights.shape
    padded = np.zeros((kh, kw, slices * LANES), np.float32)
    padded[..., :channels] = weights[0]
    packed = np.ascontiguousarray(padded.reshape(kh * kw, slices, LANES).transpose(1, 0, 2))
    return (
        request.activation("src", 0),
        request.weights("weights", packed),
        Argument("bias", "float", None, _bias(request, channels, slices * LANES)),
    )


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
    parameters = {
        "window": attributes.window,
        "chunks": chunks,
        "rows_per_tile": rows,
        "src": request.input(0),
        "weights_type": request.target.storage,
    }
    tiles = g.batch * g.slices * chunks
    macs = taps * g.pixels * g.channels
    return Kernel("depthwise_cpu", parameters, _depthwise_arguments(request), tiles, local_size=1, macs=macs)


@variant("depthwise", "gpu")
def depthwise(request: Request) -> Kernel:
    attributes, g, target = request.node.attributes, request.output.geometry, request.target
    assert isinstance(attributes, Depthwise)
    taps = prod(attributes.window.kernel)
    per_tile = items_per_tile(g.quads, target, 2 * taps * LANES)
    parameters = {
        "window": attributes.window,
        "multiplier": attributes.multiplier,
        "per_tile": per_tile,
        "src": request.input(0),
        "weights_type": target.storage,
    }
    tiles = tile_count(g.quads, per_tile)
    macs = taps * g.pixels * g.channels
    return Kernel("depthwise", parameters, _depthwise_arguments(request), tiles, target.local_size, macs=macs)


@variant("transpose_convolution")
def transpose_convolution(request: Request) -> Kernel:
    attributes, weights, target = request.node.attributes, request.constant(1), request.target
    assert isinstance(attributes, TransposeConvolution)
    g, source, (out, kh, kw, depth) = request.output.geometry, request.input(0).geometry, weights.shape
    slices_out = min(4 if target.family == "cpu" else 2, g.slices)
    blocks = tile_count(g.slices, slices_out)
    block = slices_out * LANES
    macs = source.pixels * out * kh * kw * depth
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
            "weights_type": target.storage,
        },
        (
            request.activation("src", 0),
            request.weights("weights", _dense_weights(weights, blocks, block, source.slices * LANES)),
            Argument("bias", "float", None, _bias(request, out, blocks * block)),
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
    packed = _dense_weights(weights[:, None, None, :], blocks, vectors * VECTOR, source.slices * LANES)
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
    packed = _dense_weights(weights[:, None, None, :], g.slices, LANES, source.slices * LANES)
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
