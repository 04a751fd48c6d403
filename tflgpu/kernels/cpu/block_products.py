"""Products of matrices on CPUs: blocks of rows by columns, whose sums stay in registers."""

from __future__ import annotations

from dataclasses import dataclass

from tflgpu.graph.layout import LANES, Size
from tflgpu.kernels.cpu import VECTOR
from tflgpu.kernels.kernel import Parameters
from tflgpu.kernels.tiling import even_part, most_per_tile, tile_count
from tflgpu.target import ITEM_BYTES, ElementType, Target
from tflgpu.target.kernel_numbers import kernel_numbers
from tflgpu.target.measured_costs import core_costs

# By the floats of a vector register: how many registers there are, AVX-512's, AVX2's and NEON's.
REGISTERS = {16: 32, 8: 16, 4: 32}


@dataclass(frozen=True, kw_only=True)
class BlockNumbers:
    """Numbers of products in blocks of sums, and of their tiles.

    Attributes:
        most_slices: Slices of a block of output channels; more would leave room for few pixels.
        most_rows: Rows of a block of vectors; more would only make the source longer.
        product_latency: Cycles from a product to the next one of the same sum, and one more for loads that come late.
        least_operations: Floating-point operations that are worth starting a tile.
        tiles_per_core: Tiles for each core, about, so that no core waits for long.
    """

    most_slices: int
    most_rows: int
    product_latency: int
    least_operations: int
    tiles_per_core: int


BLOCKS = kernel_numbers("cpu/block_products", BlockNumbers)


@dataclass(frozen=True, kw_only=True)
class BlockProductsParameters(Parameters):
    """Parameters of every loader of the skeleton ``templates/cpu/block_products.cl.j2``."""

    rows: int
    slices_out: int
    blocks_per_tile: Size
    factor_type: ElementType


def quads_by_cost(pixels: int, most: int) -> dict[int, float]:
    """Quads of a block, ``most`` at most, that divide a row of ``pixels`` evenly; those that take the least time first.

    Returns:
        What each takes for a row, in pixels, as :func:`pixels_per_block` counts it.
    """
    row, part = tile_count(pixels, LANES), core_costs().part_pixels
    evenly = dict.fromkeys(even_part(row, quads) for quads in range(most, 0, -1))
    taken = {quads: row_cost(row * LANES, quads * LANES, part) for quads in evenly}
    return dict(sorted(taken.items(), key=lambda each: each[1]))


def row_cost(width: int, pixels: int, part: float = 0.0) -> float:
    """Return what the blocks of a row take, in pixels.

    Args:
        width: Pixels of the row.
        pixels: Those of a block.
        part: What it costs that the row is no multiple of blocks.
    """
    return tile_count(width, pixels) * (pixels + core_costs().block_pixels) + (part if width % pixels else 0)


def vectors_in_registers(target: Target) -> int:
    """Vectors of 16 floats that the registers hold beside a vector of weights."""
    width = target.limits.vector_width
    return (REGISTERS[width] - 1) * width // VECTOR


def rows_in_registers(rows: int, vectors: int, target: Target) -> int:
    """Rows of blocks that divide ``rows`` evenly, whose sums of ``vectors`` vectors each stay in registers.

    So do the weights of an input, and that input of one row at a time.
    """
    most = max(1, min((vectors_in_registers(target) - vectors) // vectors, BLOCKS.most_rows))
    return even_part(rows, most)


def step_cycles(rows: int, vectors: int, target: Target) -> float:
    """Cycles in which a core multiplies one element of each of ``rows`` rows by ``vectors`` vectors of weights.

    Two products and two loads begin in a cycle, and weights come from the second cache. A sum waits for the product
    before it, so that few sums take longer. Loads take a little of the time of products, too.
    """
    instructions = VECTOR // target.limits.vector_width
    loads = rows + vectors * instructions
    weights = vectors * VECTOR * ITEM_BYTES["float"] / core_costs().near_bytes
    return max(rows * vectors * instructions / 2, loads / 2, weights, BLOCKS.product_latency) + loads / 8


def weights_cycles(bits: int, rows: int, row_blocks: int, target: Target, *, far: bool) -> float:
    """Cycles in which a core multiplies a vector of weights, each of ``bits`` bits, by ``rows`` rows in some blocks.

    Each of the ``row_blocks`` blocks makes floats of them. far: whether weights come from memory, once a run, and not
    from a core's cache.
    """
    costs, instructions = core_costs(), VECTOR // target.limits.vector_width
    unpacking = dict(zip((16, 8, 4), costs.unpacking, strict=True)).get(bits, 0.0)
    computing = rows * instructions / 2 + row_blocks * instructions * unpacking
    return max(computing, VECTOR * bits / 8 / (costs.memory_bytes if far else costs.near_bytes))


def pixels_per_block(width: int, wanted: int, part: float | None = None) -> int:
    """Return the width of the blocks of a row of ``width`` pixels, about ``wanted`` or less, that take the least time.

    The last block of a row begins early enough to be whole. part: what it costs that the row is no multiple of blocks,
    in pixels; by default what it costs to store a part of one.
    """
    if width <= wanted + 2:
        return width
    part = core_costs().part_pixels if part is None else part
    return min(range(wanted, wanted // 2, -1), key=lambda pixels: row_cost(width, pixels, part))


def blocks_per_tile(pixel_blocks: int, others: int, cost: int, target: Target) -> int:
    """Pixel blocks of one tile: enough work to be worth starting, enough tiles to share out evenly."""
    enough = max(1, BLOCKS.least_operations // cost)
    balanced = max(1, pixel_blocks * others // (target.compute_units * BLOCKS.tiles_per_core))
    return min(pixel_blocks, max(enough, balanced), most_per_tile(target, cost))
