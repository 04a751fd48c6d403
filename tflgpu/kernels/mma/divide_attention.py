"""Attention in two kernels: work-groups divide the keys of a row, and a second kernel joins their results.

One kernel has a work-group for some rows of a head. Those of few rows or heads leave compute units idle (Dao et al.
2023, Flash-Decoding).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tflgpu.graph.ir import Node, Tensor, TensorId
from tflgpu.graph.layout import LANES, Geometry
from tflgpu.kernels.fusing import epilogue_behind, kernel_inputs
from tflgpu.kernels.gpu.divided.division import Division, divide_nodes, fits
from tflgpu.kernels.gpu.divided.shared_sums import joining_cycles
from tflgpu.kernels.kernel import Storage
from tflgpu.kernels.mma import MMA
from tflgpu.kernels.mma.attention_kernel import candidates, has_tile
from tflgpu.kernels.mma.join_attention import JoinedAttention
from tflgpu.kernels.request import Request
from tflgpu.kernels.rewriting import Planning
from tflgpu.kernels.rows.attention import Attention
from tflgpu.kernels.tiling import tile_count, waves

PARTS = (2, 3, 4, 5, 6, 8, 12, 16)


@MMA.rewrite("divide")
def divide_attention(planning: Planning) -> Planning:
    """With two nodes for an attention wherever they take less time by the cost model."""
    return divide_nodes(planning, _divided)


def _divided(request: Request, fresh: Iterator[TensorId]) -> Division | None:
    node, attention, target = request.node, request.node.attributes, request.target
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
    divided = replace(attention, parts=parts)
    shape = (attention.heads * parts * attention.rows, attention.value_depth + LANES)
    between, known = Storage(Geometry(shape), "float"), kernel_inputs(node)
    if not fits(between, target):
        return None
    results = Tensor(next(fresh), "", shape, precise=request.graph[node.output].precise)
    first = Node("attention", node.inputs[:known], results.id, divided, sources=node.sources)
    inputs = results.id, *node.inputs[known:]
    second = Node(
        "join_attention", inputs, node.output, JoinedAttention(divided), epilogue_behind(node, 1), node.sources
    )
    return Division((first, second), (results,), {results.id: between})
