"""Kernel variants of the convolutions and of fully connected layers, and how each wants its weights packed."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod

from tflgpu.ir import Array
from tflgpu.layout import LANES
from tflgpu.ops.convolution import Convolution, Depthwise, TransposeConvolution
from tflgpu.ops.group_work import SPLITS, WARP, cycles, fits, scratch
from tflgpu.ops.kernel import Argument, Choice, Kernel, Request, Storage, items_per_tile, tile_count, variant
from tflgpu.ops.matrix_convolution import matrix_convolution
from tflgpu.ops.matrix_kernels import padded_bias, suits_matrix_units
from tflgpu.ops.packed_weights import RUNTIME_BLOCK, BlockInputs, block_inputs, pack_dense, pack_grouped
from tflgpu.ops.window import POINTWISE, Window
from tflgpu.target import Target

VECTOR = 16  # lanes of the CPU's widest float vectors
# Pixels of a CPU block by its vectors of output channels: the accumulators and the weights of one input channel
# stay in registers, of which AVX-512 has 32. The first are good, and quick to compile.
CPU_PIXELS = {1: (8, 12, 16, 6, 4), 2: (6, 12, 8, 10, 4)}
UNROLLED_TAPS = 25  # of a depthwise window; the weights of larger ones would not stay in registers
DEPTHWISE_PIXELS = (1, 2, 4)  # of a GPU's part
# Pixels and slices of a GPU's part.
GPU_PARTS = ((4, 4), (4, 2), (2, 4), (2, 2), (1, 4), (4, 1), (2, 1), (1, 2), (1, 1))
RUNTIME_GPU_PARTS = ((4, RUNTIME_BLOCK // LANES), (1, RUNTIME_BLOCK // LANES))


def _bias(request: Request, padded: int) -> Array:
    return padded_bias(request.optional_constant(2), padded)


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
    # Where output pixels read just their own place, the image is one long row.
    flat = window.is_pointwise and not src.linear
    height, width = (1, g.plane) if flat else (g.height, g.width)
    widths = dict.fromkeys(_pixels_per_block(width, wanted) for wanted in CPU_PIXELS[vectors])
    (pixels,) = request.choose([(n,) for n in widths])
    block = vectors * VECTOR
    weights = _packed_weights(request, block)
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
            Argument("bias", "float", None, _bias(request, weights.blocks * block)),
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
    attributes, src, g, target = request.node.attributes, request.input(0), request.output.geometry, request.target
    assert isinstance(attributes, Convolution)
    if suits_matrix_units(request, attributes.window, attributes.groups):
        return matrix_convolution(request, attributes.window, request.constant(1), request.optional_constant(2))
    if _is_vector_product(request):
        return fully_connected_gpu(request)
    pixels, slices_out, splits = _gpu_part(request)
    block = slices_out * LANES
    weights = _packed_weights(request, block)
    items = g.batch * weights.blocks * tile_count(g.plane, pixels)
    per_tile = target.local_size // splits
    return Kernel(
        "convolution_gpu",
        {
            "window": attributes.window,
            "pixels": pixels,
            "slices_out": slices_out,
            "slices": weights.read.slices,
            "splits": splits,
            "slices_per_split": tile_count(weights.read.slices, splits),
            "first_slice": weights.read.expression,
            "out_blocks": weights.blocks,
            "per_tile": per_tile,
            "src": src,
            "weights_type": weights.argument.type,
        },
        (
            request.activation("src", 0),
            weights.argument,
            Argument("bias", "float", None, _bias(request, weights.blocks * block)),
        ),
        tiles=tile_count(items, per_tile),
        local_size=target.local_size,
        scratch=scratch(target, splits, pixels * slices_out),
        macs=_macs(request),
    )


def _gpu_part(request: Request) -> Choice:
    """Pixels and output slices of one work-item, and how many of them share the input slices."""
    attributes, src, g, target = request.node.attributes, request.input(0), request.output.geometry, request.target
    assert isinstance(attributes, Convolution)
    runtime = request.value(1) is None

    def cost(choice: Choice) -> float:
        pixels, slices_out, splits = choice
        read = block_inputs(g.channels, attributes.groups, slices_out * LANES, src.geometry)
        items = g.batch * len(read.first) * tile_count(g.plane, pixels)
        # A compute unit multiplies four vectors a cycle; a load of one quad by each item of a warp takes it four.
        step_cycles = target.local_size / WARP * LANES * max(pixels * slices_out, pixels + slices_out)
        return cycles(
            target,
            tiles=tile_count(items * splits, target.local_size),
            steps=prod(attributes.window.kernel) * read.slices,
            step_cycles=step_cycles,
            splits=splits,
            quads=pixels * slices_out,
        )

    parts = RUNTIME_GPU_PARTS if runtime else tuple(part for part in GPU_PARTS if part[1] <= g.slices)
    choices = ((*part, n) for part, n in product(parts, SPLITS) if n <= src.slices and fits(target, n, prod(part)))
    return request.choose(sorted(choices, key=cost))


def _depthwise_arguments(request: Request) -> tuple[Argument, Argument, Argument]:
    """Image, weights and bias; weights [1, kh, kw, channels] in PHWC4 are what the kernels want."""
    g = request.output.geometry
    bias = _bias(request, g.slices * LANES)
    return request.activation("src", 0), request.operand("weights", 1), Argument("bias", "float", None, bias)


@variant("depthwise", "cpu")
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
def depthwise_gpu(request: Request) -> Kernel:
    attributes, g, target = request.node.attributes, request.output.geometry, request.target
    assert isinstance(attributes, Depthwise)
    window = attributes.window
    taps = prod(window.kernel)
    if attributes.multiplier > 1 or taps > UNROLLED_TAPS:
        return depthwise(request)

    part = request.choose_part(depthwise_parts(window, request.output, target))
    arguments = _depthwise_arguments(request)
    return Kernel(
        "depthwise_gpu",
        {
            "window": window,
            "pixels": part.pixels,
            "rows": _rows(window, part.pixels),
            "per_tile": target.local_size,
            "src": request.input(0),
            "weights_type": arguments[1].type,
        },
        arguments,
        tiles=part.tiles,
        local_size=target.local_size,
        macs=taps * g.pixels * g.channels,
    )


@dataclass(frozen=True)
class DepthwisePart:
    """How many pixels, one below the other, a work-item computes, and roughly how long the kernel takes."""

    pixels: int
    tiles: int
    cycles: float

    @property
    def choice(self) -> Choice:
        return (self.pixels,)


def depthwise_parts(window: Window, dst: Storage, target: Target) -> list[DepthwisePart]:
    """The parts that suit a depthwise convolution that gives ``dst`` on a GPU, the best first."""
    g, taps = dst.geometry, prod(window.kernel)

    def part(pixels: int) -> DepthwisePart:
        tiles = tile_count(g.batch * g.slices * tile_count(g.height, pixels) * g.width, target.local_size)
        loads = taps + window.kernel[1] * len(_rows(window, pixels))
        step_cycles = target.local_size / WARP * LANES * max(loads, taps * pixels / LANES)
        time = cycles(target, tiles=tiles, steps=1, step_cycles=step_cycles, splits=1, quads=pixels)
        return DepthwisePart(pixels, tiles, time)

    return sorted((part(n) for n in DEPTHWISE_PIXELS if n <= g.height), key=lambda p: p.cycles)


def _rows(window: Window, pixels: int) -> list[tuple[int, list[tuple[int, int]]]]:
    """The input rows that outputs one below the other need, from the first tap of the first one on.

    Each comes with its uses: the output and the tap that it is for.
    """
    uses: dict[int, list[tuple[int, int]]] = {}
    for j, ky in product(range(pixels), range(window.kernel[0])):
        uses.setdefault(j * window.stride[0] + ky * window.dilation[0], []).append((j, ky))
    return sorted(uses.items())


def depthwise(request: Request) -> Kernel:
    """For every window and channel multiplier, on both families."""
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
            Argument("bias", "float", None, _bias(request, blocks * block)),
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
            Argument("bias", "float", None, _bias(request, blocks * vectors * VECTOR)),
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
    if suits_matrix_units(request):
        return matrix_convolution(request, POINTWISE, weights[:, None, None, :], request.optional_constant(2))
    packed = pack_dense(weights[:, None, None, :], LANES, source.slices * LANES)
    return Kernel(
        "fully_connected_gpu",
        {"src": request.input(0), "weights_type": request.target.storage},
        (
            request.activation("src", 0),
            request.weights("weights", packed),
            Argument("bias", "float", None, _bias(request, g.slices * LANES)),
        ),
        tiles=g.batch * g.slices,
        local_size=local_size,
        scratch=local_size,
        macs=g.batch * out * depth,
    )
