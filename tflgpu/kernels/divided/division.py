"""Two nodes in the place of one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tflgpu.graph.ir import Node, Tensor, TensorId
from tflgpu.kernels.kernel import Storage
from tflgpu.target import Target

# What the first kernel may leave for the second: so much, and so many times less than a device's largest buffer.
MOST_BYTES = 1 << 27
TIMES_LESS = 8


@dataclass(frozen=True)
class Division:
    """Two nodes in the place of one, what they add to a graph, and their cycles."""

    nodes: tuple[Node, Node]
    tensors: tuple[Tensor, ...]
    storage: Mapping[TensorId, Storage]
    cycles: float


def fits(between: Storage, target: Target) -> bool:
    """Whether a device has room for what the first kernel leaves for the second."""
    return between.bytes <= min(MOST_BYTES, target.limits.allocation_bytes // TIMES_LESS)
