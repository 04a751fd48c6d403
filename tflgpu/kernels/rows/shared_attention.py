"""Attention on GPUs: a work-item, or several that share its keys, for each row."""

from __future__ import annotations

from collections.abc import Mapping

from tflgpu.graph.ir import Graph, TensorId
from tflgpu.graph.layout import LANES
from tflgpu.kernels.gpu import GPU
from tflgpu.kernels.kernel import Kernel, Storage
from tflgpu.kernels.request import Request
from tflgpu.kernels.rows.attention import Attention
from tflgpu.kernels.rows.fuse_attention import fuse_attention
from tflgpu.kernels.tiling import LOCAL_VEC4S, SPLIT_K, fits_local, fits_registers, tile_count
from tflgpu.target import Target

WAVES = 2  # of tiles, before work-items need not share rows


@GPU.fusion
def fuse_attention_of_rows(graph: Graph, storage: Mapping[TensorId, Storage], target: Target) -> Graph:
    """Scores go from memory to memory three times where they are not computed in one kernel."""
    return fuse_attention(graph, storage, lambda attention: _fits(attention, target))


def _fits(attention: Attention, target: Target) -> bool:
    """Whether a row's query and sums stay in registers."""
    return fits_registers(target, _vec4s(attention))


def _vec4s(attention: Attention) -> int:
    return (attention.depth + attention.value_depth) // LANES


@GPU.lowering("attention")
def attention_of_rows(request: Request) -> Kernel:
    attention, target = request.node.attributes, request.target
    assert isinstance(attention, Attention)
    size, vec4s = target.local_size, _vec4s(attention)
    sums = attention.value_depth // LANES + 1
    able = [n for n in SPLIT_K if n == 1 or (n <= size and fits_local(target, size * sums))]
    tiles = {n: attention.heads * tile_count(attention.rows, size // n) for n in able}
    sharers = next((n for n in able if tiles[n] >= WAVES * target.compute_units), able[-1])
    staged = fits_local(target, LOCAL_VEC4S // 2)
    blocks = tile_count(attention.keys, LOCAL_VEC4S // 2 // vec4s)
    block_keys = tile_count(attention.keys, blocks) if staged else attention.keys
    names = ("queries", "keys", "values", "mask")[: 4 if attention.mask else 3]
    operands = [request.operand(name, index) for index, name in enumerate(names)]
    return Kernel(
        "rows/attention",
        {
            "attention": attention,
            "sharers": sharers,
            "rows_per_tile": size // sharers,
            "chunks": tile_count(attention.rows, size // sharers),
            "staged": staged,
            "block_keys": block_keys,
            **{argument.name: argument for argument in operands},
        },
        tuple(operands),
        tiles=tiles[sharers],
        local_size=size,
        workspace=max(block_keys * vec4s if staged else 0, size * sums if sharers > 1 else 0),
        macs=attention.heads * attention.rows * attention.keys * (attention.depth + attention.value_depth),
    )
