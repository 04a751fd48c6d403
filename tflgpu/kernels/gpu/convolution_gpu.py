"""Kernel variants of the convolutions and of fully connected layers, and how each wants its weights packed."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod

from tflgpu.graph.layout import LANES
from tflgpu.kernels.kernel import Argument, Kernel, Storage
from tflgpu.kernels.lowering import lowering
from tflgpu.kernels.nvidia.convolution_choice import matrix_unit_convolution
from tflgpu.kernels.nvidia.implicit_gemm import suits_matrix_units
from tflgpu.kernels.packing import RUNTIME_BLOCK, block_inputs, pack_dense
from tflgpu.kernels.portable.convolution import depthwise
from tflgpu.kernels.request import Request, TileConfig
from tflgpu.kernels.tiling import tile_count
from tflgpu.kernels.weights import bias_of, convolution_macs, depthwise_arguments, is_vector_product, packed_weights
from tflgpu.kernels.work_group import SPLIT_K, WARP, cycles, fits, workspace
from tflgpu.ops.image.convolution import Convolution, Depthwise
from tflgpu.ops.image.window import POINTWISE, Window
from tflgpu.target import Target

UNROLLED_TAPS = 25  # of a depthwise window; the weights of larger ones would not stay in registers

DEPTHWISE_PIXELS = (1, 2, 4)  # of a GPU's part

# Pixels and slices of a GPU's part.
GPU_TILES = ((4, 4), (4, 2), (2, 4), (2, 2), (1, 4), (4, 1), (2, 1), (1, 2), (1, 1))

RUNTIME_GPU_TILES = ((4, RUNTIME_BLOCK // LANES), (1, RUNTIME_BLOCK // LANES))


@lowering("convolution", "gpu")
def convolution_gpu(request: Request) -> Kernel:
    attributes, src, g, target = request.node.attributes, request.input(0), request.output.geometry, request.target
    assert isinstance(attributes, Convolution)
    if suits_matrix_units(request, attributes.window, attributes.groups):
        return matrix_unit_convolution(request, attributes.window, request.constant(1), request.optional_constant(2))
    if is_vector_product(request):
        return fully_connected_gpu(request)
    pixels, slices_out, split_k = _gpu_tile(request)
    block = slices_out * LANES
    weights = packed_weights(request, block)
    items = g.batch * weights.blocks * tile_count(g.plane, pixels)
    per_tile = target.local_size // split_k
    return Kernel(
        "gpu/convolution",
        {
            "window": attributes.window,
            "pixels": pixels,
            "slices_out": slices_out,
            "slices": weights.read.slices,
            "split_k": split_k,
            "slices_per_split": tile_count(weights.read.slices, split_k),
            "first_slice": weights.read.expression,
            "out_blocks": weights.blocks,
            "per_tile": per_tile,
            "src": src,
            "weights_type": weights.argument.type,
        },
        (
            request.activation("src", 0),
            weights.argument,
            Argument("bias", "float", None, bias_of(request, weights.blocks * block)),
        ),
        tiles=tile_count(items, per_tile),
        local_size=target.local_size,
        workspace=workspace(target, split_k, pixels * slices_out),
        macs=convolution_macs(request),
    )


def _gpu_tile(request: Request) -> TileConfig:
    """Pixels and output slices of one work-item, and how many of them share the input slices."""
    attributes, src, g, target = request.node.attributes, request.input(0), request.output.geometry, request.target
    assert isinstance(attributes, Convolution)
    runtime = request.value(1) is None

    def cost(config: TileConfig) -> float:
        pixels, slices_out, split_k = config
        read = block_inputs(g.channels, attributes.groups, slices_out * LANES, src.geometry)
        items = g.batch * len(read.first) * tile_count(g.plane, pixels)
        # A compute unit multiplies four vectors a cycle; a load of one quad by each item of a warp takes it four.
        k_step_cycles = target.local_size / WARP * LANES * max(pixels * slices_out, pixels + slices_out)
        return cycles(
            target,
            tiles=tile_count(items * split_k, target.local_size),
            k_steps=prod(attributes.window.kernel) * read.slices,
            k_step_cycles=k_step_cycles,
            split_k=split_k,
            vec4s=pixels * slices_out,
        )

    tiles = RUNTIME_GPU_TILES if runtime else tuple(tile for tile in GPU_TILES if tile[1] <= g.slices)
    choices = ((*tile, n) for tile, n in product(tiles, SPLIT_K) if n <= src.slices and fits(target, n, prod(tile)))
    return request.choose(sorted(choices, key=cost))


@lowering("depthwise", "gpu")
def depthwise_gpu(request: Request) -> Kernel:
    attributes, g, target = request.node.attributes, request.output.geometry, request.target
    assert isinstance(attributes, Depthwise)
    window = attributes.window
    taps = prod(window.kernel)
    if attributes.multiplier > 1 or taps > UNROLLED_TAPS:
        return depthwise(request)

    tile = request.choose_candidate(depthwise_tiles(window, request.output, target))
    arguments = depthwise_arguments(request)
    return Kernel(
        "gpu/depthwise_columns",
        {
            "window": window,
            "pixels": tile.pixels,
            "rows": _rows(window, tile.pixels),
            "per_tile": target.local_size,
            "src": request.input(0),
            "weights_type": arguments[1].type,
        },
        arguments,
        tiles=tile.tiles,
        local_size=target.local_size,
        macs=taps * g.pixels * g.channels,
    )


@dataclass(frozen=True)
class DepthwiseTile:
    """How many pixels, one below the other, a work-item computes, and roughly how long the kernel takes."""

    pixels: int
    tiles: int
    cycles: float

    @property
    def config(self) -> TileConfig:
        return (self.pixels,)


def depthwise_tiles(window: Window, dst: Storage, target: Target) -> list[DepthwiseTile]:
    """The parts that suit a depthwise convolution that gives ``dst`` on a GPU, the best first."""
    g, taps = dst.geometry, prod(window.kernel)

    def tile(pixels: int) -> DepthwiseTile:
        tiles = tile_count(g.batch * g.slices * tile_count(g.height, pixels) * g.width, target.local_size)
        loads = taps + window.kernel[1] * len(_rows(window, pixels))
        k_step_cycles = target.local_size / WARP * LANES * max(loads, taps * pixels / LANES)
        time = cycles(target, tiles=tiles, k_steps=1, k_step_cycles=k_step_cycles, split_k=1, vec4s=pixels)
        return DepthwiseTile(pixels, tiles, time)

    return sorted((tile(n) for n in DEPTHWISE_PIXELS if n <= g.height), key=lambda p: p.cycles)


def _rows(window: Window, pixels: int) -> list[tuple[int, list[tuple[int, int]]]]:
    """The input rows that outputs one below the other need, from the first tap of the first one on.

    Each comes with its uses: the output and the tap that it is for.
    """
    uses: dict[int, list[tuple[int, int]]] = {}
    for j, ky in product(range(pixels), range(window.kernel[0])):
        uses.setdefault(j * window.stride[0] + ky * window.dilation[0], []).append((j, ky))
    return sorted(uses.items())


@lowering("fully_connected", "gpu")
def fully_connected_gpu(request: Request) -> Kernel:
    source, g = request.input(0).geometry, request.output.geometry
    weights = request.constant(1).reshape(g.channels, -1)
    out, depth = weights.shape
    local_size = request.target.local_size
    if suits_matrix_units(request):
        return matrix_unit_convolution(request, POINTWISE, weights[:, None, None, :], request.optional_constant(2))
    packed = pack_dense(weights[:, None, None, :], LANES, source.slices * LANES)
    return Kernel(
        "gpu/fully_connected",
        {"src": request.input(0), "weights_type": request.target.storage},
        (
            request.activation("src", 0),
            request.weights("weights", packed),
            Argument("bias", "float", None, bias_of(request, g.slices * LANES)),
        ),
        tiles=g.batch * g.slices,
        local_size=local_size,
        workspace=local_size,
        macs=g.batch * out * depth,
    )
