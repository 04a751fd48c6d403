"""Fully connected layers on CPUs, convolutions that are such layers, and products of matrices computed at run time."""

from __future__ import annotations

from dataclasses import dataclass

from tflgpu.graph.layout import LANES, Size
from tflgpu.kernels.access import Access, reach
from tflgpu.kernels.convolutions import bias_argument, is_vector_product
from tflgpu.kernels.cpu import CPU, VECTOR
from tflgpu.kernels.cpu.block_products import (
    BLOCKS,
    BlockProductsParameters,
    blocks_per_tile,
    quads_by_cost,
    rows_in_registers,
    step_cycles,
    vectors_in_registers,
    weights_cycles,
)
from tflgpu.kernels.kernel import Argument, Kernel, Storage
from tflgpu.kernels.packing import StoredIntegers, pack_dense, stored_integers
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import even_part, tile_count
from tflgpu.ops.arithmetic.matmul import MatMul, matrix_of
from tflgpu.target import ITEM_BYTES, ElementType, Target, is_exact_in_half
from tflgpu.target.kernel_numbers import kernel_numbers
from tflgpu.target.measured_costs import core_costs


@dataclass(frozen=True, kw_only=True)
class LayerNumbers:
    """Numbers of fully connected layers.

    Attributes:
        most_vectors: Vectors of a block of outputs; more would only make the source longer.
        widened_floats: Floats that a tile's images become: a core's second cache holds them beside weights.
        widening_cycles: Cycles for each half that becomes a float.
        unpacked_floats: Floats of a block of outputs: a core's second cache holds them.
        unpacking_cycles: Cycles for each weight that becomes a float in memory.
        few_blocks: Blocks of rows, each of which unpacks the weights for itself: to keep them would take as long.
    """

    most_vectors: int
    widened_floats: int
    widening_cycles: float
    unpacked_floats: int
    unpacking_cycles: float
    few_blocks: int


LAYERS = kernel_numbers("cpu/fully_connected", LayerNumbers)


@dataclass(frozen=True, kw_only=True)
class FullyConnectedParameters(BlockProductsParameters, template="cpu/fully_connected", stores_once=True):
    """Parameters of ``templates/cpu/fully_connected.cl.j2``."""

    row_blocks: int
    output_blocks: Size
    output_tiles: Size
    widens: bool
    unpacks: bool
    images: Size
    src: Storage
    weights_type: ElementType
    scale_block: int
    together: int


@CPU.lowering("convolution", when=is_vector_product, after=("convolution_of_slices",), reads_grids=True)
@CPU.lowering("fully_connected", reads_grids=True)
def fully_connected(request: Request) -> Kernel:
    """Return a fully connected layer in blocks of rows by vectors of 16 outputs."""
    source, g = request.input(0).geometry, request.output.geometry
    weights = request.constant(1).reshape(g.channels, -1)
    out, depth = weights.shape
    src, storage = request.input(0), request.target.storage
    factor_type = request.factor_type(src.type, storage)
    vectors, rows = _block(out, g.batch, request.target, LAYERS.most_vectors)
    most_together = LAYERS.unpacked_floats // (source.slices * LANES * VECTOR)
    often = tile_count(g.batch, rows) > LAYERS.few_blocks
    stored = _stored(request) if most_together or not often else factor_type
    # A register of halves becomes floats by one instruction, beside the products of all rows of a block.
    in_one = request.target.limits.vector_width == VECTOR
    is_packed = isinstance(stored, StoredIntegers) or (stored != factor_type and not in_one)
    unpacks = is_packed and often
    if unpacks:
        vectors, rows = _block(out, g.batch, request.target, min(LAYERS.most_vectors, most_together))
    elif isinstance(stored, StoredIntegers):
        # The sums of one row stay in registers beside what is unpacked.
        most = max(1, min(LAYERS.most_vectors, vectors_in_registers(request.target) - 1))
        vectors, rows = _block(out, g.batch, request.target, most)
    widens = src.type != "float" and factor_type == "float" and rows * depth <= LAYERS.widened_floats
    blocks = tile_count(out, vectors * VECTOR)
    all_row_blocks = tile_count(g.batch, rows)
    row_blocks, output_blocks = _tile(
        all_row_blocks, blocks, rows, vectors, depth, request.target, widens=widens, unpacks=unpacks
    )
    output_tiles = tile_count(blocks, output_blocks)
    # Kernels of all numbers of rows read the same layout, so that signatures share weights.
    packing = VECTOR, source.slices * LANES
    all_vectors = tile_count(out, VECTOR)
    scales: tuple[Argument, ...] = ()
    scale_block, together = 0, 1
    if isinstance(stored, StoredIntegers):
        packed, together = stored.weights("weights", *packing), stored.together
        scales = (stored.scales_argument(all_vectors * VECTOR),)
        scale_block = stored.scale_block(packing[1])
    else:
        packed = Argument("weights", stored, data=pack_dense(weights[:, None, None, :], *packing))
    return Kernel(
        FullyConnectedParameters(
            rows=rows,
            slices_out=vectors * VECTOR // LANES,
            blocks_per_tile=row_blocks * output_blocks,
            row_blocks=row_blocks,
            output_blocks=output_blocks,
            output_tiles=output_tiles,
            widens=widens,
            unpacks=unpacks,
            images=g.batch,
            src=src,
            weights_type=packed.type,
            scale_block=scale_block,
            together=together,
            factor_type=factor_type,
        ),
        (
            request.activation("src", 0),
            packed,
            *scales,
            bias_argument(request, (all_vectors + LAYERS.most_vectors - 1) * VECTOR),
        ),
        tiles=tile_count(all_row_blocks, row_blocks) * output_tiles,
        local_size=1,
        macs=g.batch * out * depth,
    )


def _stored(request: Request) -> StoredIntegers | ElementType:
    """Return the weights as integers, or the type of floats in which they are stored, whichever one row takes the
    least with.

    More rows have the same: weights are in memory once, and what many blocks of rows use is unpacked once for a tile.
    """
    src, target, weights = request.input(0), request.target, request.constant(1)
    usual: ElementType = target.storage
    if request.factor_type(src.type, usual) == "half":
        return usual
    far = not target.caches_hold(request.graph.constant_bytes)

    def cycles(bits: int) -> float:
        return weights_cycles(bits, 1, 1, target, far=far)

    as_usual = cycles(8 * ITEM_BYTES[usual])
    if cycles(8) < as_usual or cycles(4) < as_usual:
        stored = stored_integers(request)
        if stored is not None and cycles(stored.bits) < as_usual:
            return stored
    if usual == "float" and cycles(16) < as_usual and is_exact_in_half(weights):
        return "half"
    return usual


def _block(out: int, images: int, target: Target, most: int) -> tuple[int, int]:
    """Vectors of outputs, ``most`` at most, and images of the blocks that take the least time."""

    def cost(vectors: int) -> float:
        rows = rows_in_registers(images, vectors, target)
        blocks = tile_count(out, vectors * VECTOR) * tile_count(images, rows)
        return tile_count(blocks, target.compute_units) * step_cycles(rows, vectors, target)

    vectors = min(range(1, min(most, tile_count(out, VECTOR)) + 1), key=cost)
    return vectors, rows_in_registers(images, vectors, target)


def _tile(
    row_blocks: int,
    output_blocks: int,
    rows: int,
    vectors: int,
    depth: int,
    target: Target,
    *,
    widens: bool,
    unpacks: bool,
) -> tuple[int, int]:
    """Blocks of rows and of outputs of a tile: those for which it reads the least beside its products.

    Tiles of the same images follow each other, so that these stay in a core's second cache. The weights of a tile come
    from farther away, once. Halves take the time to become floats, too, and so do weights that are unpacked.
    """
    # Work that is hardly worth a tile is shared out nevertheless, if there is a tile for each block of outputs.
    all_blocks = row_blocks * output_blocks
    most = max(row_blocks, all_blocks // (target.compute_units * BLOCKS.tiles_per_core))
    wanted = min(most, blocks_per_tile(all_blocks, 1, 2 * rows * vectors * VECTOR * depth, target))
    room = row_blocks if unpacks and not widens else max(1, LAYERS.widened_floats // (rows * depth))
    image = ITEM_BYTES["float"] / core_costs().near_bytes + (LAYERS.widening_cycles if widens else 0)
    weight = ITEM_BYTES["float"] / core_costs().far_bytes + (LAYERS.unpacking_cycles if unpacks else 0)

    def outputs(count: int) -> int:
        return even_part(output_blocks, wanted // count)

    def cost(count: int) -> float:
        return (count * rows * image + outputs(count) * vectors * VECTOR * weight) / (count * outputs(count))

    counts = range(1, min(row_blocks, room, wanted) + 1)
    evenly = {even_part(row_blocks, count) for count in counts}
    chosen = min(sorted(evenly, reverse=True), key=cost)
    return chosen, outputs(chosen)


def _has_rows_side_by_side(request: Request) -> bool:
    """Whether rows of the left side, and of an adjoint right one, are neighbours in memory: pixels of one row."""
    attributes = request.attributes(MatMul)
    sides = [0, 1] if attributes.adjoint_right else [0]
    are_pixels = all(len(request.shape(side).shape) >= 3 for side in sides)
    return not attributes.adjoint_left and are_pixels


@dataclass(frozen=True, kw_only=True)
class MatmulQuadsParameters(BlockProductsParameters, template="cpu/matmul_quads", stores_once=True):
    """Parameters of ``templates/cpu/matmul_quads.cl.j2``."""

    left: Access
    right: Access
    left_plane: Size
    right_plane: Size
    right_stride: Size
    adjoint_right: bool
    depth: Size
    column_blocks: int
    blocks: Size


@CPU.lowering("matmul", when=_has_rows_side_by_side, reads_grids=True)
def matmul_of_quads(request: Request) -> Kernel:
    """Blocks of quads, which are four neighbouring rows of a slice, by output slices."""
    attributes, g = request.attributes(MatMul), request.output.geometry
    left, right = request.operand("left", 0), request.operand("right", 1)
    left_shape, right_shape = request.shape(0), request.shape(1)
    _, depth = matrix_of(left_shape.shape, attributes.adjoint_left)
    row_axis, last_axis = len(g.shape) - 2, len(g.shape) - 1
    vectors = vectors_in_registers(request.target)
    slices = min(BLOCKS.most_slices, vectors - 2, g.slices)
    # Four columns of an adjoint side stay in registers, too, while their elements come first in turn.
    most = max(1, (vectors - (slices if attributes.adjoint_right else 0)) // (slices + 2))
    quads = request.choose_number(quads_by_cost(g.width, most))
    column_blocks = tile_count(g.slices, slices)
    row_blocks = tile_count(g.width, quads * LANES)
    others = g.batch * g.height * column_blocks
    cost = 2 * quads * slices * LANES**2 * depth
    per_tile = blocks_per_tile(row_blocks * others, 1, cost, request.target)
    return Kernel(
        MatmulQuadsParameters(
            left=reach(left, left_shape, g.shape, {last_axis}),
            right=reach(right, right_shape, g.shape, {row_axis, last_axis}),
            left_plane=left_shape.plane,
            right_plane=right_shape.plane,
            right_stride=right_shape.axis_strides[-1],
            adjoint_right=attributes.adjoint_right,
            depth=depth,
            rows=quads * LANES,
            slices_out=slices,
            blocks_per_tile=per_tile,
            column_blocks=column_blocks,
            blocks=row_blocks * others,
            factor_type=request.factor_type(left.type, right.type),
        ),
        (left, right),
        tiles=tile_count(row_blocks * others, per_tile),
        local_size=1,
        macs=g.batch * g.plane * g.channels * depth,
    )
