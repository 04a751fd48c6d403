"""Attention on tensor cores in two kernels, where one would leave compute units idle."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tflgpu.graph.ir import TensorId
from tflgpu.graph.layout import LANES
from tflgpu.kernels.gpu.divided.divided_keys import PARTS, in_parts
from tflgpu.kernels.gpu.divided.division import Division, divide_nodes
from tflgpu.kernels.gpu.divided.shared_sums import joining_cycles
from tflgpu.kernels.mma import MMA
from tflgpu.kernels.mma.attention_kernel import candidates, has_tile
from tflgpu.kernels.request import Request
from tflgpu.kernels.rewriting import Planning
from tflgpu.kernels.rows.attention import Attention
from tflgpu.kernels.tiling import tile_count, waves


@MMA.rewrite("divide")
def divide_attention(planning: Planning) -> Planning:
    """With two nodes for an attention wherever they take less time by the cost model."""
    return divide_nodes(planning, _divided)


def _divided(request: Request, fresh: Iterator[TensorId]) -> Division | None:
    attention, target = request.node.attributes, request.target
    if not isinstance(attention, Attention) or not has_tile(
        attention, [request.input(n).type for n in range(3)], target
    ):
        return None
    cycles = {1: candidates(attention, target)[0].cycles}
    vec4s = attention.heads * attention.rows * attention.value_depth // LANES
    joining = joining_cycles(target, waves(tile_count(vec4s, target.local_size), target))
    for parts in PARTS:
        if found := candidates(replace(attention, parts=parts), target):
            cycles[parts] = found[0].cycles + joining
    parts = min(cycles, key=cycles.__getitem__)
    if parts == 1:
        return None
    return in_parts(request, parts, fresh)
