"""Convolutions on GPUs: each work-item computes some pixels of some output slices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import prod

from tflgpu.graph.layout import LANES, Size
from tflgpu.kernels.candidates import Candidate, Tile, ranked
from tflgpu.kernels.convolutions import Phases, bias_argument, convolution_macs, packed_weights, phases_of
from tflgpu.kernels.gpu import GPU
from tflgpu.kernels.kernel import Kernel, Storage
from tflgpu.kernels.packing import RUNTIME_BLOCK, Groups, block_inputs
from tflgpu.kernels.portable.costs import KLoopWork
from tflgpu.kernels.portable.matmul_kernels import choose_with_group
from tflgpu.kernels.portable.matrix_products import ItemProductsParameters
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import SPLIT_K, can_split, fits_registers, split_workspace, tile_count
from tflgpu.ops.image.convolution import Convolution, TransposeConvolution
from tflgpu.ops.image.window import Window
from tflgpu.target import ElementType, Target

# Pixels and output slices of a work-item; for weights that are packed at run time those of their blocks.
TILES = ((4, 4), (4, 2), (2, 4), (2, 2), (1, 4), (4, 1), (2, 1), (1, 2), (1, 1))
LEAST_STEPS = 16  # of a work-item that shares the input slices of all taps, not those of each tap
# From this number on LLVM for AMD's GPUs spills if it unrolls the taps of a window, whose factors it loads at once.
MANY_ACCUMULATORS = 8
RUNTIME_TILES = ((4, RUNTIME_BLOCK // LANES), (1, RUNTIME_BLOCK // LANES))


@dataclass(frozen=True)
class ConvolutionTile(Tile):
    """Pixels and output slices of one work-item, and how many work-items share the input slices."""

    pixels: int
    slices: int
    split_k: int

    @property
    def accumulators(self) -> int:
        """vec4s of a work-item."""
        return self.pixels * self.slices


def candidates(request: Request, target: Target) -> list[Candidate[ConvolutionTile, KLoopWork]]:
    """Return the tiles of a convolution, the fastest first."""
    tiles = _tiles(request, target)
    return ranked(tiles, lambda tile: _work(tile, request, target), target)


def _tiles(request: Request, target: Target) -> Iterator[ConvolutionTile]:
    attributes, src, dst = request.node.attributes, request.input(0), request.output
    assert isinstance(attributes, Convolution | TransposeConvolution)
    phases = phases_of(request)
    k_steps = prod(attributes.window.kernel) * src.slices
    shapes = RUNTIME_TILES if not request.is_constant(1) else [tile for tile in TILES if tile[1] <= dst.slices]
    for (pixels, slices), split_k in product(shapes, SPLIT_K):
        fits = pixels == 1 or fits_registers(target, pixels * slices)
        has_steps = split_k <= src.slices or (not phases and LEAST_STEPS * split_k <= k_steps)
        if fits and has_steps and can_split(target, split_k, pixels * slices):
            yield ConvolutionTile(pixels, slices, split_k)


def _work(tile: ConvolutionTile, request: Request, target: Target) -> KLoopWork:
    attributes, g, phases = request.node.attributes, request.output.geometry, phases_of(request)
    assert isinstance(attributes, Convolution | TransposeConvolution)
    read = block_inputs(g.channels, attributes.groups, tile.slices * LANES, request.input(0).geometry)
    taps = prod((phases.window_of_phase if phases else attributes.window).kernel)
    return KLoopWork(
        tiles=request.shares * tile_count(_items(request, tile, len(read.first)) * tile.split_k, target.local_size),
        k_steps=tile_count(taps * read.slices, request.shares),
        loads=tile.pixels + tile.slices,
        products=tile.accumulators,
        accumulators=tile.accumulators,
        split_k=tile.split_k,
        tile=(tile.pixels, tile.slices),
    )


def _items(request: Request, tile: ConvolutionTile, blocks: int) -> int:
    """How many work-items the tile takes, or groups of them that split K; ``blocks`` are those of output channels."""
    g, phases = request.output.geometry, phases_of(request)
    grids, plane = (phases.count, phases.plane) if phases else (1, g.plane)
    return g.batch * grids * blocks * tile_count(plane, tile.pixels)


def _best(request: Request) -> Candidate[ConvolutionTile, KLoopWork] | None:
    """None for shares of a transposed convolution, of which each phase has its own taps."""
    return None if request.shares > 1 and phases_of(request) else candidates(request, request.target)[0]


@dataclass(frozen=True, kw_only=True)
class ConvolutionParameters(ItemProductsParameters, template="gpu/convolution", stores_once=True):
    """Parameters of ``templates/gpu/convolution.cl.j2``."""

    window: Window
    slices: Size
    shares: int
    by_steps: bool
    per_split: Size
    first_slice: str
    groups: Groups | None
    out_blocks: Size
    phases: Phases | None
    rolled: bool
    src: Storage
    weights_type: ElementType
    factor_type: ElementType


@GPU.lowering("transpose_convolution", best=_best)
@GPU.lowering("convolution", best=_best)
def convolution(request: Request) -> Kernel:
    """Return a dense convolution, transposed or not, whose work-items compute some pixels of some output slices."""
    attributes, src = request.node.attributes, request.input(0)
    assert isinstance(attributes, Convolution | TransposeConvolution)
    chosen, target = choose_with_group(request, partial(candidates, request))
    tile = chosen.tile
    weights = packed_weights(request, tile.slices * LANES)
    items = _items(request, tile, weights.blocks)
    per_tile = target.local_size // tile.split_k
    slices = weights.read.slices
    steps = prod(attributes.window.kernel) * slices
    by_steps = request.shares > 1 or tile.split_k > slices
    return Kernel(
        ConvolutionParameters(
            window=attributes.window,
            rows=tile.pixels,
            slices_out=tile.slices,
            slices=slices,
            split_k=tile.split_k,
            shares=request.shares,
            by_steps=by_steps,
            per_split=tile_count(steps if by_steps else slices, request.shares * tile.split_k),
            first_slice=weights.read.expression,
            groups=weights.groups,
            out_blocks=weights.blocks,
            phases=phases_of(request),
            rolled=tile.accumulators >= MANY_ACCUMULATORS and not target.ptx,
            per_tile=per_tile,
            src=src,
            weights_type=weights.argument.type,
            factor_type=request.factor_type(src.type, weights.argument.type),
        ),
        (
            request.activation("src", 0),
            weights.argument,
            bias_argument(request, weights.blocks * tile.slices * LANES),
        ),
        tiles=tile_count(items, per_tile),
        local_size=target.local_size,
        workspace=split_workspace(target, tile.split_k, tile.accumulators),
        macs=convolution_macs(request),
    )
