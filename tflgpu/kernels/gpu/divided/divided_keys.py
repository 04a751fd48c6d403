"""Attention in two kernels: work-groups divide the keys of a row, and a second kernel joins their results.

One kernel has a work-group for some rows of a head. Those of few rows or heads leave compute units idle (Dao et al.
2023, Flash-Decoding).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tflgpu.graph.ir import Node, Tensor
from tflgpu.graph.layout import LANES, Geometry
from tflgpu.graph.rewrite_rules import NewTensors
from tflgpu.kernels.architecture import lowering_of
from tflgpu.kernels.attention import Attention
from tflgpu.kernels.demand import cycles
from tflgpu.kernels.fusing import epilogue_behind, kernel_inputs
from tflgpu.kernels.gpu import GPU
from tflgpu.kernels.gpu.attention_kernel import rows_work
from tflgpu.kernels.gpu.divided.division import Division, divide_nodes, fits
from tflgpu.kernels.gpu.divided.shared_sums import joining_cycles
from tflgpu.kernels.gpu.join_attention import JoinedAttention
from tflgpu.kernels.kernel import Storage
from tflgpu.kernels.request import Request
from tflgpu.kernels.rewriting import Planning
from tflgpu.kernels.tiling import tile_count, waves

PARTS = (2, 3, 4, 5, 6, 8, 12, 16)


@GPU.rewrite("divide")
def divide_keys(planning: Planning) -> Planning:
    """Put two nodes for an attention of few rows wherever they take less time by the cost model."""
    return divide_nodes(planning, _divided)


def _divided(request: Request, new: NewTensors) -> Division | None:
    attention, target = request.node.attributes, request.target
    if not isinstance(attention, Attention) or attention.parts > 1 or lowering_of(request).architecture is not GPU:
        return None

    def rows_cycles(divided: Attention) -> float | None:
        every_part_has_a_key = (divided.parts - 1) * tile_count(divided.keys, divided.parts) < divided.keys
        return cycles(rows_work(divided, target), target) if every_part_has_a_key else None

    return in_parts(request, attention, rows_cycles, new)


def in_parts(
    request: Request, attention: Attention, cycles_of: Callable[[Attention], float | None], new: NewTensors
) -> Division | None:
    """Two nodes for an attention, the first of which divides the keys; None if one takes less time.

    Also if there is no room for the results of the first. cycles_of: of the first; None if it cannot be divided so.
    """
    node, target = request.node, request.target
    vec4s = attention.heads * attention.rows * attention.value_depth // LANES
    joining = joining_cycles(target, waves(tile_count(vec4s, target.local_size), target))
    cycles_by_parts: dict[int, float] = {}
    for parts in (1, *PARTS):
        own = cycles_of(replace(attention, parts=parts))
        if own is not None:
            cycles_by_parts[parts] = own + (joining if parts > 1 else 0)
    divided = replace(attention, parts=min(cycles_by_parts, key=cycles_by_parts.__getitem__))
    if divided.parts == 1:
        return None
    shape = (attention.heads * divided.parts * attention.rows, attention.value_depth + LANES)
    between, known = Storage(Geometry(shape), "float"), kernel_inputs(node)
    if not fits(between, target):
        return None
    results = new.add(Tensor(-1, "", shape, precise=request.graph[node.output].precise))
    first = Node("attention", node.inputs[:known], results.id, divided, sources=node.sources)
    inputs = results.id, *node.inputs[known:]
    second = Node(
        "join_attention", inputs, node.output, JoinedAttention(divided), epilogue_behind(node, 1), node.sources
    )
    return Division((first, second), {results.id: between})
