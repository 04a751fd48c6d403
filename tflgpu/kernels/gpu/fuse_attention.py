"""Attention as one node: its scores go from memory to memory three times where they are not computed in one kernel."""

from __future__ import annotations

from collections.abc import Mapping

from tflgpu.graph.ir import Graph, TensorId
from tflgpu.kernels.attention import with_attention
from tflgpu.kernels.gpu import GPU
from tflgpu.kernels.gpu.attention_kernel import rows_held
from tflgpu.kernels.kernel import Storage
from tflgpu.target import Target


@GPU.fusion()
def fuse_attention(graph: Graph, storage: Mapping[TensorId, Storage], target: Target) -> Graph:
    """One node for each attention for which the kernel has room."""
    return with_attention(graph, storage, lambda attention, _: bool(rows_held(attention, target)))
