"""Attention on GPUs: a work-item, or several that share its keys, for each row; a second kernel joins parts of keys."""

from __future__ import annotations

from dataclasses import dataclass

from tflgpu.graph.layout import LANES, Size
from tflgpu.kernels.attention import Attention, AttentionParameters, operands_of
from tflgpu.kernels.gpu import GPU
from tflgpu.kernels.kernel import Kernel, Parameters
from tflgpu.kernels.portable.costs import KLoopWork
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import LOCAL_VEC4S, SPLIT_K, fits_local, split_workspace, tile_count, waves
from tflgpu.target import Limits, Target
from tflgpu.target.kernel_numbers import kernel_numbers

STAGED_VEC4S = LOCAL_VEC4S // 2  # of keys and values in local memory at once


@dataclass(frozen=True, kw_only=True)
class AttentionNumbers:
    """Numbers of attention by work-items.

    Attributes:
        held_vec4s: Vec4s of queries and sums that a work-item has in 256 registers.
        loading: Cost that each key adds to a tile, in rows that a work-item has alone: it loads keys and adds up sums.
    """

    held_vec4s: int
    loading: float


NUMBERS = kernel_numbers("gpu/attention", AttentionNumbers)


ROWS_HELD = (4, 2, 1)


def _vec4s(attention: Attention) -> int:
    """Return the vec4s of a key and a value, or of a row's query and sums."""
    return (attention.depth + attention.value_depth) // LANES


def rows_held(attention: Attention, target: Target) -> list[int]:
    """How many rows of queries and sums a work-item can have in registers, the most first."""
    most = NUMBERS.held_vec4s * target.limits.registers // Limits.registers
    return [rows for rows in ROWS_HELD if rows * _vec4s(attention) <= most]


def divide(attention: Attention, target: Target) -> tuple[int, int]:
    """Rows of a work-item, and the work-items that share them."""
    size, sums = target.local_size, attention.value_depth // LANES + 1
    sharing = [n for n in SPLIT_K if n == 1 or (n <= size and fits_local(target, size * sums))]
    ways = [(rows, sharers) for rows in rows_held(attention, target) for sharers in sharing]
    return min(
        ways, key=lambda way: waves(_tiles(attention, target, *way), target) * (way[0] / way[1] + NUMBERS.loading)
    )


def _tiles(attention: Attention, target: Target, rows: int, sharers: int) -> int:
    return attention.heads * attention.parts * tile_count(attention.rows, rows * target.local_size // sharers)


def rows_work(attention: Attention, target: Target) -> KLoopWork:
    """Return what a work-item does: a step is a key and a value for the rows that it has."""
    rows, sharers = divide(attention, target)
    vec4s = _vec4s(attention)
    return KLoopWork(
        tiles=_tiles(attention, target, rows, sharers),
        k_steps=_keys_of_part(attention),
        loads=vec4s,
        products=rows * vec4s / LANES,
        accumulators=rows * (attention.value_depth // LANES + 1),
        split_k=sharers,
    )


def _keys_of_part(attention: Attention) -> int:
    """Keys of each part but the last one, which may have fewer."""
    return tile_count(attention.keys, attention.parts)


@dataclass(frozen=True, kw_only=True)
class AttentionRowsParameters(AttentionParameters, template="rows/attention", stores_once=True):
    """Parameters of ``templates/rows/attention.cl.j2``."""

    rows_held: int
    sharers: int
    rows_per_tile: Size
    chunks: Size
    staged: bool
    key_stride: int
    part_keys: int
    block_keys: int


@GPU.lowering("attention")
def attention_of_rows(request: Request) -> Kernel:
    """Attention whose work-items have some rows each, or share the keys of rows."""
    attention, target = request.attributes(Attention), request.target
    rows, sharers = divide(attention, target)
    size, sums = target.local_size, attention.value_depth // LANES + 1
    staged = fits_local(target, STAGED_VEC4S)
    key_stride = _vec4s(attention) | 1  # so that neighbours are in different banks of local memory
    part_keys = _keys_of_part(attention)
    blocks = tile_count(part_keys, STAGED_VEC4S // key_stride)
    block_keys = tile_count(part_keys, blocks) if staged else part_keys
    operands = operands_of(request, attention)
    return Kernel(
        AttentionRowsParameters(
            attention=attention,
            rows_held=rows,
            sharers=sharers,
            rows_per_tile=rows * size // sharers,
            chunks=tile_count(attention.rows, rows * size // sharers),
            staged=staged,
            key_stride=key_stride,
            part_keys=part_keys,
            block_keys=block_keys,
            **operands,
        ),
        tuple(operands.values()),
        tiles=_tiles(attention, target, rows, sharers),
        local_size=size,
        workspace=max(block_keys * key_stride if staged else 0, split_workspace(target, sharers, sums)),
        macs=attention.macs,
    )


JOINED_VEC4S = 16  # of all parts that a work-item has in registers


@dataclass(frozen=True)
class JoinedAttention:
    """Inputs: the results of the parts of ``attention``, and how much they weigh."""

    attention: Attention


@dataclass(frozen=True, kw_only=True)
class JoinAttentionParameters(Parameters, template="rows/join_attention", stores_once=True):
    """Parameters of ``templates/rows/join_attention.cl.j2``."""

    attention: Attention
    at_once: int


@GPU.lowering("join_attention")
def join_attention(request: Request) -> Kernel:
    """Return the second kernel: a work-item joins some vec4s of all parts."""
    attention, target = request.attributes(JoinedAttention).attention, request.target
    parts = request.operand("parts", 0)
    vec4s = attention.heads * attention.rows * attention.value_depth // LANES
    tiles = tile_count(vec4s, target.local_size)
    # Waves of a persistent kernel would wait for memory one after another.
    most = max(1, JOINED_VEC4S // attention.parts)
    at_once = 1 if target.executor == "launch" else min(most, waves(tiles, target))
    return Kernel(
        JoinAttentionParameters(attention=attention, at_once=at_once),
        (parts,),
        tiles=tile_count(tiles, at_once),
        local_size=target.local_size,
    )
