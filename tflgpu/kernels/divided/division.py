"""Two nodes in the place of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tflgpu.graph.ir import Graph, Node, Tensor, TensorId
from tflgpu.kernels.kernel import Storage
from tflgpu.kernels.request import Request
from tflgpu.target import Target

# What the first kernel may leave for the second: so much, and so many times less than a device's largest buffer.
MOST_BYTES = 1 << 27
TIMES_LESS = 8


@dataclass(frozen=True)
class Division:
    """Two nodes in the place of one, and what they add to a graph."""

    nodes: tuple[Node, Node]
    tensors: tuple[Tensor, ...]
    storage: Mapping[TensorId, Storage]


Divide = Callable[[Request, Iterator[TensorId]], Division | None]


def divide_nodes(
    graph: Graph, storage: Mapping[TensorId, Storage], target: Target, divide: Divide
) -> tuple[Graph, dict[TensorId, Storage]]:
    """The graph with two nodes for each that ``divide`` divides, and the storage of its activations: on GPUs only."""
    nodes: list[Node] = []
    tensors: list[Tensor] = []
    fresh, known = graph.fresh_ids(), dict(storage)
    for node in graph.nodes:
        two = divide(Request(node, graph, storage, target), fresh) if target.family == "gpu" else None
        if two is None:
            nodes.append(node)
            continue
        nodes += two.nodes
        tensors += two.tensors
        known |= two.storage
    return graph.with_nodes(nodes, tensors), known


def fits(between: Storage, target: Target) -> bool:
    """Whether a device has room for what the first kernel leaves for the second."""
    return between.bytes <= min(MOST_BYTES, target.limits.allocation_bytes // TIMES_LESS)
