"""Attention as one node: its scores go from memory to memory three times where they are not computed in one kernel."""

from __future__ import annotations

from collections.abc import Mapping

from tflgpu.graph.ir import Graph, TensorId
from tflgpu.kernels.attention import with_attention
from tflgpu.kernels.cpu import CPU
from tflgpu.kernels.cpu.attention_kernel import has_room
from tflgpu.kernels.kernel import Storage
from tflgpu.target import Target


@CPU.fusion()
def fuse_attention(graph: Graph, storage: Mapping[TensorId, Storage], target: Target) -> Graph:
    """One node for each attention for which the kernels have room."""
    return with_attention(graph, storage, lambda attention, _: has_room(attention))
