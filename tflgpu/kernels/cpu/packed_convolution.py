"""Convolutions on CPUs as products of blocks that caches hold, of an image that is packed for them (im2col).

A run of neighbouring pixels is packed once for all output channels of a tile, part by part of the depth. A block of
sums, pixels by vectors of output channels, then reads two streams, and no product asks where its pixel is.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, prod

from tflgpu.graph.layout import LANES, Size
from tflgpu.kernels.convolutions import bias_argument, convolution_macs, packed_weights
from tflgpu.kernels.cpu import VECTOR
from tflgpu.kernels.cpu.block_products import REGISTERS, BlockProductsParameters, blocks_per_tile
from tflgpu.kernels.cpu.costs import packed_cost
from tflgpu.kernels.kernel import Kernel, Storage
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import even_part, local_vec4s, tile_count
from tflgpu.ops.image.convolution import Convolution
from tflgpu.ops.image.window import Window
from tflgpu.target import ElementType, Target
from tflgpu.target.kernel_numbers import kernel_numbers
from tflgpu.target.measured_costs import core_costs


@dataclass(frozen=True, kw_only=True)
class PackedNumbers:
    """Numbers of convolutions whose images are packed for blocks of sums.

    Attributes:
        wide_vectors: Vectors of output channels of a block: with two, each element of the image serves two products.
        narrow_vectors: The same where registers are narrow, which would hold the sums of too few pixels.
        most_pixels: Pixels of a block, which is text that compilers unroll.
        run_pixels: Pixels, about, that share the loads of the weights.
        small_image: Pixels of an image up to which all share them.
        part_vec4s: Vec4s of a part of the depth, packed for a run: a core's first cache has it beside the weights.
        sums_vec4s: The same of the sums that wait for the next part.
    """

    wide_vectors: int
    narrow_vectors: int
    most_pixels: int
    run_pixels: int
    small_image: int
    part_vec4s: int
    sums_vec4s: int


NUMBERS = kernel_numbers("cpu/packed_convolution", PackedNumbers)


# Products that are added up in turn, at most: `unbroken` of templates/access/sums.cl.j2.
MOST_PRODUCTS = 4608


@dataclass(frozen=True, kw_only=True)
class PackedConvolutionParameters(BlockProductsParameters, template="cpu/convolution_packed", stores_once=True):
    """Parameters of ``templates/cpu/convolution_packed.cl.j2``."""

    window: Window
    slices: Size
    first_slice: str
    out_blocks: Size
    column_blocks: int
    run_blocks: int
    part: Size
    images: Size
    src: Storage
    weights_type: ElementType


@dataclass(frozen=True)
class PackedBlocks:
    """How a convolution is divided.

    vectors, pixels: of a block of sums. blocks: blocks of output channels. depth: slices of all taps; part: those that
    are packed together. run_blocks: blocks of pixels of a run. runs: of an image. column_blocks: of a tile.
    """

    vectors: int
    pixels: int
    blocks: int
    depth: int
    part: int
    run_blocks: int
    runs: int
    column_blocks: int

    @property
    def run(self) -> int:
        """Pixels of a run."""
        return self.run_blocks * self.pixels

    @property
    def workspace(self) -> int:
        """float4 elements of local memory: a packed part, and the sums of one block, or of all of a tile."""
        waiting = self.column_blocks if self.part < self.depth else 1
        return self.run * (self.part + waiting * self.vectors * VECTOR // LANES)


def cost_if_packed(request: Request) -> float:
    """Return what it takes to pack a convolution of an image in PHWC4, as ``packed_cost`` has it; inf if it cannot
    be."""
    attributes, src, target = request.node.attributes, request.input(0), request.target
    if not isinstance(attributes, Convolution) or not request.is_constant(1):
        return inf
    # Wide registers hold so many quads that products of neighbouring pixels are as fast by these.
    if attributes.window.is_pointwise and _is_wide(target) and not has_halves(request):
        return inf
    if request.factor_type(src.type, target.storage) != "float" or not _has_whole_groups(request):
        return inf
    made = divided(request, _block_pixels(request)[0])
    products = made.depth * LANES
    if products > MOST_PRODUCTS or made.workspace > local_vec4s(target):
        return inf
    return _cost(made, request.output.geometry.batch, products, target)


def has_halves(request: Request) -> bool:
    """Whether the operands of a convolution are stored in half."""
    return "half" in (request.input(0).type, request.target.storage)


def _cost(made: PackedBlocks, images: int, products: int, target: Target) -> float:
    tiles = tile_count(made.blocks, made.column_blocks) * made.runs * images
    pixels = made.run_blocks * (made.pixels + core_costs().block_pixels)
    return packed_cost(tiles, pixels, made.column_blocks * made.vectors * VECTOR, products, target)


def packed_convolution(request: Request) -> Kernel:
    """Blocks of pixels by vectors of output channels, whose operands lie together."""
    attributes, src, g = request.attributes(Convolution), request.input(0), request.output.geometry
    (pixels,) = request.choose([(n,) for n in _block_pixels(request)])
    made = divided(request, pixels)
    block = made.vectors * VECTOR
    weights = packed_weights(request, block)
    column_tiles = tile_count(made.blocks, made.column_blocks)
    cost = 2 * LANES * made.depth * made.run * block * made.column_blocks
    runs = made.runs * g.batch
    per_tile = blocks_per_tile(runs, column_tiles, cost, request.target)
    return Kernel(
        PackedConvolutionParameters(
            rows=made.pixels,
            slices_out=block // LANES,
            blocks_per_tile=per_tile,
            factor_type="float",
            window=attributes.window,
            slices=weights.read.slices,
            first_slice=weights.read.expression,
            out_blocks=made.blocks,
            column_blocks=made.column_blocks,
            run_blocks=made.run_blocks,
            part=made.part,
            images=g.batch,
            src=src,
            weights_type=weights.argument.type,
        ),
        (request.activation("src", 0), weights.argument, bias_argument(request, weights.blocks * block)),
        tiles=column_tiles * tile_count(runs, per_tile),
        local_size=1,
        workspace=made.workspace,
        macs=convolution_macs(request),
    )


def divided(request: Request, pixels: int) -> PackedBlocks:
    """How blocks of ``pixels``, runs and parts divide a convolution that can be packed."""
    attributes, g, target = request.attributes(Convolution), request.output.geometry, request.target
    vectors = _vectors(target, g.channels // attributes.groups)
    blocks = tile_count(g.channels, vectors * VECTOR)
    depth = prod(attributes.window.kernel) * tile_count(_inputs(request), LANES)
    row_blocks = tile_count(g.plane, pixels)
    run_pixels = NUMBERS.small_image if g.plane <= NUMBERS.small_image else NUMBERS.run_pixels
    run_blocks = even_part(row_blocks, run_pixels // pixels)
    run = run_blocks * pixels
    part = even_part(depth, NUMBERS.part_vec4s // run)
    waiting = max(1, NUMBERS.sums_vec4s // (run * vectors * VECTOR // LANES)) if part < depth else blocks
    runs = tile_count(row_blocks, run_blocks)
    column_tiles = blocks
    if attributes.groups == 1:
        column_tiles = min(
            range(tile_count(blocks, waiting), blocks + 1),
            key=lambda n: packed_cost(
                n * runs * g.batch, run, tile_count(blocks, n) * vectors * VECTOR, depth * LANES, target
            ),
        )
    return PackedBlocks(vectors, pixels, blocks, depth, part, run_blocks, runs, tile_count(blocks, column_tiles))


def _is_wide(target: Target) -> bool:
    return target.limits.vector_width >= VECTOR


def _vectors(target: Target, out: int) -> int:
    """Vectors of a block of ``out`` output channels, or of those of a group."""
    most = NUMBERS.wide_vectors if _is_wide(target) else NUMBERS.narrow_vectors
    return min(range(most, 0, -1), key=lambda n: -out % (n * VECTOR))


def _block_pixels(request: Request) -> list[int]:
    """Pixels of a block, those first that take the least time for an image.

    The registers hold the sums, the weights and an element of the image.
    """
    attributes, g, width = request.attributes(Convolution), request.output.geometry, request.target.limits.vector_width
    vectors = _vectors(request.target, g.channels // attributes.groups)
    most = min(NUMBERS.most_pixels, (REGISTERS[width] - 1) * width // (vectors * VECTOR) - 1)
    between = core_costs().block_pixels
    return sorted(range(most, most // 2, -1), key=lambda n: tile_count(g.plane, n) * (n + between))


def _inputs(request: Request) -> int:
    """Input channels that an output channel sees."""
    attributes = request.attributes(Convolution)
    return request.input(0).channels // attributes.groups


def _has_whole_groups(request: Request) -> bool:
    """Whether a block of output channels belongs to one group, and reads whole slices of it."""
    attributes, out = request.attributes(Convolution), request.output.geometry.channels
    if attributes.groups == 1:
        return True
    per_group = out // attributes.groups
    return per_group % (_vectors(request.target, per_group) * VECTOR) == 0 and _inputs(request) % LANES == 0
