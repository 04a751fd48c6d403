"""Two nodes in the place of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tflgpu.graph.ir import Node, TensorId
from tflgpu.graph.rewrite_rules import NewTensors
from tflgpu.kernels.kernel import Storage
from tflgpu.kernels.request import Request
from tflgpu.kernels.rewriting import Planning
from tflgpu.target import Target

# The part of a device's largest buffer that the tensor between the two kernels may take.
PART_OF_BUFFER = 8


@dataclass(frozen=True)
class Division:
    """Two nodes in the place of one, and the storage of what is between them."""

    nodes: tuple[Node, Node]
    storage: Mapping[TensorId, Storage]


Divide = Callable[[Request, NewTensors], Division | None]


def divide_nodes(planning: Planning, divide: Divide) -> Planning:
    """Put two nodes for each that ``divide`` divides."""
    tensors = NewTensors(planning.graph)
    divided = {node.output: two for node in planning.graph.nodes if (two := divide(planning.request(node), tensors))}
    graph = planning.graph.with_replaced({output: two.nodes for output, two in divided.items()}, tensors)
    return planning.with_graph(graph, {t: each for two in divided.values() for t, each in two.storage.items()})


def fits(between: Storage, target: Target) -> bool:
    """Whether a device has room for what the first kernel leaves for the second."""
    return between.bytes <= target.limits.of_plans.allocation_bytes // PART_OF_BUFFER
