"""Attention on CPUs: in blocks of rows by keys that a core's cache holds, and of few rows, without copies of keys."""

from __future__ import annotations

from dataclasses import dataclass

from tflgpu.graph.layout import LANES
from tflgpu.kernels.attention import Attention, AttentionParameters, operands_of
from tflgpu.kernels.cpu import CPU, VECTOR
from tflgpu.kernels.cpu.block_products import rows_in_registers, step_cycles, vectors_in_registers
from tflgpu.kernels.kernel import Kernel
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import even_part, most_per_tile, power_of_two, tile_count
from tflgpu.target import Target
from tflgpu.target.kernel_numbers import kernel_numbers


@dataclass(frozen=True, kw_only=True)
class AttentionNumbers:
    """Numbers of attention in blocks, and of that of few rows.

    Attributes:
        key_floats: Floats of a block's keys and values, which a core's second cache holds.
        row_floats: Floats of a tile's queries and results.
        most_elements: Elements of a key, or of a value.
        least_rows: Rows from which on keys are transposed into blocks.
        few_rows_keys: Keys of a block for few rows: their scores stay in a core's first cache.
        most_quads: Quads of channels that few rows have in registers; more would only make the source longer.
        most_vectors: Vectors of a block of keys.
        copy_cycles: Cycles for each element of keys and values that a tile copies.
    """

    key_floats: int
    row_floats: int
    most_elements: int
    least_rows: int
    few_rows_keys: int
    most_quads: int
    most_vectors: int
    copy_cycles: float


NUMBERS = kernel_numbers("cpu/attention", AttentionNumbers)


def has_room(attention: Attention) -> bool:
    """Whether the kernels have room for such an attention."""
    return max(attention.depth, attention.value_depth) <= NUMBERS.most_elements


@dataclass(frozen=True)
class AttentionBlock:
    """Rows by vectors of 16 keys, or of 16 elements of a value, whose sums are in registers.

    products: of vectors, for all keys. cycles: of a core for these.
    """

    rows: int
    vectors: int
    products: int
    cycles: float

    @property
    def columns(self) -> int:
        """Keys or elements of a value."""
        return self.vectors * VECTOR


@dataclass(frozen=True, kw_only=True)
class ChunkParameters(AttentionParameters):
    """Parameters of the templates of both kernels, whose tiles are chunks of the rows of a head."""

    rows: int
    chunks: int
    block_keys: int


@dataclass(frozen=True, kw_only=True)
class AttentionBlocksParameters(ChunkParameters, template="cpu/attention_blocks", stores_once=True):
    """Parameters of ``templates/cpu/attention_blocks.cl.j2``."""

    slices_out: int
    rows_per_tile: int


@dataclass(frozen=True, kw_only=True)
class AttentionFewRowsParameters(ChunkParameters, template="cpu/attention_few_rows", stores_once=True):
    """Parameters of ``templates/cpu/attention_few_rows.cl.j2``."""

    quads: int
    slices: int


def _has_few_rows(request: Request) -> bool:
    attention = request.node.attributes
    return isinstance(attention, Attention) and attention.rows < NUMBERS.least_rows


@CPU.lowering("attention", when=_has_few_rows)
def attention_of_few_rows(request: Request) -> Kernel:
    """Attention whose work-item reads all keys and values of a head, where they lie, for all rows or some."""
    attention, target = request.attributes(Attention), request.target

    def cycles(rows: int) -> int:  # to load a key takes about the time of a product
        return tile_count(attention.heads * tile_count(attention.rows, rows), target.compute_units) * (1 + rows)

    rows = min(range(attention.rows, 0, -1), key=cycles)
    most = max(1, min(NUMBERS.most_quads, (vectors_in_registers(target) - 1) // rows))
    quads, slices = power_of_two(most), attention.value_depth // LANES
    return _kernel(
        AttentionFewRowsParameters(
            attention=attention,
            rows=rows,
            chunks=tile_count(attention.rows, rows),
            quads=quads,
            slices=max(n for n in range(1, most + 1) if slices % n == 0),
            block_keys=NUMBERS.few_rows_keys,
            **operands_of(request, attention),
        )
    )


@CPU.lowering("attention")
def attention_in_blocks(request: Request) -> Kernel:
    """Attention whose work-item computes some blocks of rows of a head."""
    attention, target = request.attributes(Attention), request.target
    block = _block(attention, target)
    rows_per_tile = block.rows * _row_blocks(attention, block, target)
    most_keys = max(1, NUMBERS.key_floats // (_elements(attention, block) * block.columns)) * block.columns
    keys = even_part(attention.keys, most_keys)
    return _kernel(
        AttentionBlocksParameters(
            attention=attention,
            rows=block.rows,
            slices_out=block.columns // LANES,
            rows_per_tile=rows_per_tile,
            chunks=tile_count(attention.rows, rows_per_tile),
            block_keys=tile_count(keys, block.columns) * block.columns,
            **operands_of(request, attention),
        )
    )


def _kernel(parameters: ChunkParameters) -> Kernel:
    attention = parameters.attention
    operands = (parameters.queries, parameters.keys, parameters.values, parameters.mask)
    return Kernel(
        parameters,
        tuple(filter(None, operands)),
        tiles=attention.heads * parameters.chunks,
        local_size=1,
        macs=attention.macs,
        fills_vectors=True,
    )


def _elements(attention: Attention, block: AttentionBlock) -> int:
    """Return the elements of a key and of a value, which has whole vectors."""
    return attention.depth + tile_count(attention.value_depth, block.columns) * block.columns


def _block(attention: Attention, target: Target) -> AttentionBlock:
    """Return the block that takes the least time for all rows of a head."""

    def block(vectors: int) -> AttentionBlock:
        rows = rows_in_registers(attention.rows, vectors, target)
        groups, values = (tile_count(n, vectors * VECTOR) for n in (attention.keys, attention.value_depth))
        steps = attention.depth * groups + attention.keys * values
        return AttentionBlock(rows, vectors, rows * vectors * steps, steps * step_cycles(rows, vectors, target))

    blocks = [block(vectors) for vectors in range(1, NUMBERS.most_vectors + 1)]
    fitting = [b for b in blocks if b.columns * _elements(attention, b) <= NUMBERS.key_floats]
    return min(fitting or blocks[:1], key=lambda b: tile_count(attention.rows, b.rows) * b.cycles)


def _row_blocks(attention: Attention, block: AttentionBlock, target: Target) -> int:
    """Blocks of rows of a tile. Large tiles copy keys and values seldom, small ones keep all cores busy."""
    all_blocks = tile_count(attention.rows, block.rows)
    room = max(1, NUMBERS.row_floats // (block.rows * _elements(attention, block)))
    most = min(all_blocks, room, most_per_tile(target, block.products))
    copying = attention.keys * (attention.depth + attention.value_depth) * NUMBERS.copy_cycles

    def cycles(count: int) -> float:
        tiles = attention.heads * tile_count(all_blocks, count)
        return tile_count(tiles, target.compute_units) * (count * block.cycles + copying)

    evenly = {even_part(all_blocks, count) for count in range(1, most + 1)}
    return min(sorted(evenly, reverse=True), key=cycles)
