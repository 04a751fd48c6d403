"""Attention on CPUs, 16 rows at a time."""

from __future__ import annotations

from dataclasses import dataclass

from tflgpu.kernels.cpu import CPU, VECTOR
from tflgpu.kernels.cpu.block_products import vectors_in_registers
from tflgpu.kernels.kernel import Kernel
from tflgpu.kernels.request import Request
from tflgpu.kernels.rows.attention import Attention, AttentionParameters, operands_of
from tflgpu.kernels.tiling import TILES_PER_CORE, most_per_tile, tile_count

FLOATS = 16384  # of a block's keys, values and scores: 64 KiB, which a core's second cache holds
VECTORS = 512  # of the sums of a tile, 32 KiB
MOST_KEYS_HELD = 8
LEAST_ROWS = 8  # of a vector of 16, for which it is worth to leave the others idle


def fits_vectors(attention: Attention) -> bool:
    """Whether the kernel has room for such an attention, and enough rows to fill vectors."""
    return attention.rows >= LEAST_ROWS and attention.value_depth + 2 <= VECTORS and attention.depth <= VECTORS


@dataclass(frozen=True, kw_only=True)
class AttentionVectorsParameters(AttentionParameters, template="rows/attention_vectors"):
    """Parameters of ``templates/rows/attention_vectors.cl.j2``."""

    blocks: int
    row_blocks: int
    chunks: int
    block_keys: int
    keys_held: int
    values_held: int


@CPU.lowering("attention")
def attention_of_vectors(request: Request) -> Kernel:
    """Attention whose work-item computes blocks of 16 rows."""
    attention = request.node.attributes
    assert isinstance(attention, Attention)
    depths = attention.depth + attention.value_depth
    key_blocks = tile_count(attention.keys, FLOATS // (depths + VECTOR))
    row_blocks = tile_count(attention.rows, VECTOR)
    balanced = attention.heads * row_blocks // (request.target.compute_units * TILES_PER_CORE)
    cost = attention.keys * (2 * depths + VECTOR)  # turns of vectors of a block
    blocks = min(VECTORS // (attention.value_depth + 2), row_blocks, max(1, balanced))
    blocks = min(blocks, most_per_tile(request.target, cost))
    chunks = tile_count(row_blocks, blocks)
    registers = vectors_in_registers(request.target)
    operands = operands_of(request, attention)
    return Kernel(
        AttentionVectorsParameters(
            attention=attention,
            blocks=blocks,
            row_blocks=row_blocks,
            chunks=chunks,
            block_keys=tile_count(attention.keys, key_blocks),
            keys_held=min(MOST_KEYS_HELD, registers - 2),
            values_held=max(1, registers - 2),
            **operands,
        ),
        tuple(operands.values()),
        tiles=attention.heads * chunks,
        local_size=1,
        macs=attention.macs,
        fills_vectors=True,
    )
