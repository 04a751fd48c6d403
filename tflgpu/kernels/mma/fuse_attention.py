"""Attention of long rows as one node: those for which registers of work-items have no room, but tiles of warps do."""

from __future__ import annotations

from collections.abc import Mapping

from tflgpu.graph.ir import Graph, TensorId
from tflgpu.kernels.attention import with_attention
from tflgpu.kernels.kernel import Storage
from tflgpu.kernels.mma import MMA
from tflgpu.kernels.mma.attention_kernel import has_tile
from tflgpu.target import Target


@MMA.fusion()
def fuse_attention(graph: Graph, storage: Mapping[TensorId, Storage], target: Target) -> Graph:
    """One node for each attention of halves for which there is a tile."""
    return with_attention(
        graph, storage, lambda attention, inputs: has_tile(attention, [storage[t].type for t in inputs[:3]], target)
    )
