"""Convolutions on CPUs: blocks of pixels by output channels, whose sums stay in registers.

Where the image is packed for it (im2col), a run of neighbouring pixels is packed once for all output channels of a
tile, part by part of the depth. A block of sums, pixels by vectors of output channels, then reads two streams, and no
product asks where its pixel is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import inf, prod

from tflgpu.graph.layout import LANES, Size
from tflgpu.kernels.convolutions import (
    Phases,
    bias_argument,
    convolution_macs,
    is_vector_product,
    packed_weights,
    phases_of,
)
from tflgpu.kernels.cpu import CPU, VECTOR
from tflgpu.kernels.cpu.block_products import (
    BLOCKS,
    REGISTERS,
    BlockProductsParameters,
    blocks_per_tile,
    pixels_per_block,
    quads_by_cost,
    row_cost,
    vectors_in_registers,
)
from tflgpu.kernels.cpu.costs import packed_cost, quads_cost
from tflgpu.kernels.kernel import Kernel, Storage
from tflgpu.kernels.packing import RUNTIME_BLOCK, Groups, block_inputs
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import even_part, local_vec4s, tile_count
from tflgpu.ops.image.convolution import Convolution, TransposeConvolution
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


PACKED_NUMBERS = kernel_numbers("cpu/packed_convolution", PackedNumbers)


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
    # The kernel by quads is as fast for 1x1 convolutions where registers are wide, and packs nothing.
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
    pixels = request.choose_number(_block_pixels(request))
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
    run_pixels = PACKED_NUMBERS.small_image if g.plane <= PACKED_NUMBERS.small_image else PACKED_NUMBERS.run_pixels
    run_blocks = even_part(row_blocks, run_pixels // pixels)
    run = run_blocks * pixels
    part = even_part(depth, PACKED_NUMBERS.part_vec4s // run)
    waiting = max(1, PACKED_NUMBERS.sums_vec4s // (run * vectors * VECTOR // LANES)) if part < depth else blocks
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
    most = PACKED_NUMBERS.wide_vectors if _is_wide(target) else PACKED_NUMBERS.narrow_vectors
    return min(range(most, 0, -1), key=lambda n: -out % (n * VECTOR))


def _block_pixels(request: Request) -> list[int]:
    """Pixels of a block, those first that take the least time for an image.

    The registers hold the sums, the weights and an element of the image.
    """
    attributes, g, width = request.attributes(Convolution), request.output.geometry, request.target.limits.vector_width
    vectors = _vectors(request.target, g.channels // attributes.groups)
    most = min(PACKED_NUMBERS.most_pixels, (REGISTERS[width] - 1) * width // (vectors * VECTOR) - 1)
    return sorted(range(most, most // 2, -1), key=lambda pixels: row_cost(g.plane, pixels))


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


# For an image in the host's order: pixels of a block by its vectors of output channels. The first are good, and quick
# to compile; the others are for tuning.
PIXELS: Mapping[int, tuple[int, ...]] = {1: (8, 12, 16, 6, 4), 2: (6, 12, 8, 10, 4)}
PIXELS_OF_NARROW_VECTORS: tuple[int, ...] = (6, 4)

# The same of an image in PHWC4. The sums, the weights and two elements of the image fill the registers.
PIXELS_OF_SLICES: Mapping[int, tuple[int, ...]] = {2: (14, 11), 3: (9, 7)}


@dataclass(frozen=True, kw_only=True)
class ConvolutionNumbers:
    """Numbers by which a convolution has one block or another.

    Attributes:
        deep: Input channels from which on it counts for little that the result of such a block has to be transposed.
        far_weights: Input channels from which on the weights of a block of output channels leave a core's first cache.
    """

    deep: int
    far_weights: int


CONVOLUTION = kernel_numbers("cpu/convolution", ConvolutionNumbers)


@dataclass(frozen=True)
class PixelRows:
    """The rows of pixels of an image, or of what it becomes where all of it is one long row."""

    height: Size
    width: Size


def _reads_slices(request: Request) -> bool:
    """Whether the image is in PHWC4, and a fully connected layer will not do."""
    return not request.input(0).linear and not is_vector_product(request)


def _is_deep_and_pointwise(request: Request) -> bool:
    """Whether output pixels sum many floats of a pixel in PHWC4, in whole blocks of vectors that registers hold."""
    attributes, src, target = request.node.attributes, request.input(0), request.target
    if not isinstance(attributes, Convolution) or not attributes.window.is_pointwise or not _reads_slices(request):
        return False
    wide_floats = src.type != "half" and target.storage == "float" and target.limits.vector_width == VECTOR
    constant = attributes.groups == 1 and request.is_constant(1)
    deep = src.channels >= CONVOLUTION.deep and request.output.geometry.plane > VECTOR
    return wide_floats and constant and deep and _vectors_of_whole_blocks(request) > 0


def _vectors_of_whole_blocks(request: Request) -> int:
    """How many vectors of output channels blocks may have so that no lane is wasted; 0 if there is no such number."""
    return next((n for n in PIXELS_OF_SLICES if request.output.channels % (n * VECTOR) == 0), 0)


@dataclass(frozen=True, kw_only=True)
class ConvolutionParameters(BlockProductsParameters):
    """Parameters of ``templates/cpu/convolution_blocks.cl.j2``, whatever the atom."""

    window: Window
    slices: Size
    first_slice: str
    groups: Groups | None
    out_blocks: Size
    chunks: Size
    pixel_rows: PixelRows
    phases: Phases | None
    src: Storage
    weights_type: ElementType


@dataclass(frozen=True, kw_only=True)
class VectorConvolutionParameters(ConvolutionParameters, template="cpu/convolution", stores_once=True):
    """Parameters of ``templates/cpu/convolution.cl.j2``."""

    turns: Size
    lines_ahead: int


@dataclass(frozen=True, kw_only=True)
class QuadConvolutionParameters(ConvolutionParameters, template="cpu/convolution_quads", stores_once=True):
    """Parameters of ``templates/cpu/convolution_quads.cl.j2``."""


@CPU.lowering("convolution", when=_is_deep_and_pointwise, reads_grids=True)
def pointwise_convolution(request: Request) -> Kernel:
    """Blocks of pixels by vectors of output channels, against which elements of the image are broadcast.

    Products need no shuffles, and no pixels of a quad are wasted; but the result has to be transposed.
    """
    plane, vectors = request.output.geometry.plane, _vectors_of_whole_blocks(request)
    wanted = PIXELS_OF_SLICES[vectors]
    pixels = request.choose_number(pixels_per_block(plane, n) for n in wanted)
    return _kernel(request, PixelRows(1, plane), pixels, vectors * VECTOR // LANES, by_vectors=True)


@dataclass(frozen=True)
class QuadBlocks:
    """Blocks of a convolution by quads: ``slices`` of output channels, and ``most`` quads of ``rows`` at most."""

    rows: PixelRows
    slices: int
    most: int


def _quad_blocks(request: Request) -> QuadBlocks:
    attributes = request.node.attributes
    assert isinstance(attributes, Convolution | TransposeConvolution)
    g, phases = request.output.geometry, phases_of(request)
    grid = phases or g
    # Where output pixels read just their own place, the image is one long row.
    in_one_row = phases is None and attributes.window.is_pointwise
    rows = PixelRows(1, g.plane) if in_one_row else PixelRows(grid.height, grid.width)
    vectors = vectors_in_registers(request.target)
    most = min(BLOCKS.most_slices, vectors - 2, g.slices)
    slices = min(range(most, 0, -1), key=lambda n: _multiplied(request, n)) if attributes.groups > 1 else 0
    if not slices:
        # Few slices are left over in the last block.
        slices = min(range(most, most // 2, -1), key=lambda n: -g.slices % n)
    if not request.is_constant(1):
        slices = RUNTIME_BLOCK // LANES
    # Each quad has its sums, its element of the image, and that once more with a channel in all lanes.
    return QuadBlocks(rows, slices, max(1, vectors // (slices + 2)))


def _is_packed(request: Request) -> bool:
    """Whether the image is in PHWC4, and it takes less to pack it than to read quads of it."""
    packed = cost_if_packed(request) if _reads_slices(request) else inf
    return packed < inf and packed < _cost_by_quads(request)


def _cost_by_quads(request: Request) -> float:
    attributes, g, blocks = request.attributes(Convolution), request.output.geometry, _quad_blocks(request)
    row = min(quads_by_cost(blocks.rows.width, blocks.most).values())
    products = prod(attributes.window.kernel) * _multiplied(request, blocks.slices) * LANES**2
    return quads_cost(g.batch * blocks.rows.height * row, products, has_halves(request), request.target)


CPU.lowering("convolution", when=_is_packed, after=("pointwise_convolution",), reads_grids=True)(packed_convolution)


@CPU.lowering("transpose_convolution", reads_grids=True)
@CPU.lowering("convolution", when=_reads_slices, after=("packed_convolution",), reads_grids=True)
def convolution_of_slices(request: Request) -> Kernel:
    """Blocks of quads, which are four neighbouring pixels of a slice, by output slices."""
    blocks = _quad_blocks(request)
    quads = request.choose_number(quads_by_cost(blocks.rows.width, blocks.most))
    return _kernel(request, blocks.rows, quads * LANES, blocks.slices, by_vectors=False)


def _multiplied(request: Request, slices: int) -> int:
    """Products of a pixel if blocks are of ``slices``: those with channels of other groups are in vain."""
    attributes, g = request.node.attributes, request.output.geometry
    assert isinstance(attributes, Convolution | TransposeConvolution)
    read = block_inputs(g.channels, attributes.groups, slices * LANES, request.input(0).geometry)
    return len(read.first) * slices * read.slices


@CPU.lowering("convolution", reads_grids=True)
def convolution(request: Request) -> Kernel:
    """Convolve an image of few channels in the host's order: blocks of pixels by vectors of output channels."""
    attributes, g = request.attributes(Convolution), request.output.geometry
    narrow = request.target.limits.vector_width < VECTOR
    single = narrow or attributes.groups > 1 or g.channels % (2 * VECTOR) or not request.is_constant(1)
    vectors = 1 if single else 2
    wanted = PIXELS_OF_NARROW_VECTORS if narrow else PIXELS[vectors]
    pixels = request.choose_number(pixels_per_block(g.width, n) for n in wanted)
    return _kernel(request, PixelRows(g.height, g.width), pixels, vectors * VECTOR // LANES, by_vectors=True)


def _kernel(request: Request, rows: PixelRows, pixels: int, slices_out: int, *, by_vectors: bool) -> Kernel:
    """Return the kernel of blocks of ``pixels`` by ``slices_out`` output slices, in vectors of 16 channels or in
    quads."""
    attributes, src, g = request.node.attributes, request.input(0), request.output.geometry
    assert isinstance(attributes, Convolution | TransposeConvolution)
    block = slices_out * LANES
    weights, phases = packed_weights(request, block), phases_of(request)
    pixel_blocks = tile_count(rows.width, pixels) * rows.height
    taps = prod((phases.window_of_phase if phases else attributes.window).kernel)
    cost = 2 * pixels * block * taps * weights.read.slices * LANES
    others = weights.blocks * g.batch * (phases.count if phases else 1)
    per_tile = blocks_per_tile(pixel_blocks, others, cost, request.target)
    chunks = tile_count(pixel_blocks, per_tile)
    made: Callable[..., ConvolutionParameters] = QuadConvolutionParameters
    if by_vectors:
        ahead = lines_ahead(attributes.window, src, block // VECTOR, per_tile, weights.blocks)
        made = partial(VectorConvolutionParameters, turns=request.target.unrolled, lines_ahead=ahead)
    return Kernel(
        made(
            rows=pixels,
            slices_out=slices_out,
            blocks_per_tile=per_tile,
            window=attributes.window,
            slices=weights.read.slices,
            first_slice=weights.read.expression,
            groups=weights.groups,
            out_blocks=weights.blocks,
            chunks=chunks,
            pixel_rows=rows,
            phases=phases,
            src=src,
            weights_type=weights.argument.type,
            factor_type=request.factor_type(src.type, weights.argument.type),
        ),
        (
            request.activation("src", 0),
            weights.argument,
            bias_argument(request, weights.blocks * block),
        ),
        tiles=chunks * others,
        local_size=1,
        macs=convolution_macs(request),
    )


def lines_ahead(window: Window, src: Storage, vectors: int, pixel_blocks: int, out_blocks: int) -> int:
    """Lines of a cache of the next block of channels that are fetched while a slice of this one is multiplied.

    Of a pointwise convolution whose weights come from a core's second cache at best: as many as the ``pixel_blocks`` of
    a tile need for all. A line is a vector.
    """
    if not window.is_pointwise or src.linear or src.channels < CONVOLUTION.far_weights or out_blocks == 1:
        return 0
    return tile_count(LANES * vectors, pixel_blocks)
