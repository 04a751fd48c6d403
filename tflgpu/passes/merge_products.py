"""Make one product of several fully connected layers of the same rows whose results are moved next.

Converters write the projections of attention to queries, keys and values one by one. The result of the joint layer has
all of them side by side, and what moves them, or attention itself, takes them from there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from tflgpu.graph.ir import Graph, Node, TensorId, joint_sources
from tflgpu.graph.layout import LANES, Shape
from tflgpu.graph.rewrite_rules import NewTensors
from tflgpu.ops.movement.shaping import AxisMap, Rearrange


def merge_products(graph: Graph) -> Graph:
    """Let fully connected layers of the same matrix be one whose result is sliced."""
    groups: dict[tuple[TensorId, Shape], list[Node]] = defaultdict(list)
    for node in graph.of_kind("fully_connected"):
        if _can_merge(graph, node):
            groups[_whole(graph, node.inputs[0]), graph[node.inputs[0]].shape].append(node)
    new = NewTensors(graph)
    replaced: dict[TensorId, list[Node]] = {}
    for layers in groups.values():
        if len(layers) > 1:
            replaced |= {layer.output: [] for layer in layers}
            replaced[layers[0].output] = list(_merged(graph, layers, new))
    return graph.with_replaced(replaced, new)


def _whole(graph: Graph, tensor: TensorId) -> TensorId:
    """Return the tensor of which ``tensor`` is a reshape."""
    while (node := graph.producer.get(tensor)) is not None and node.kind == "reshape" and not node.epilogue:
        tensor = node.inputs[0]
    return tensor


def _can_merge(graph: Graph, node: Node) -> bool:
    """Whether a layer is one of constants without an epilogue, whose result something moves, or a product reads."""
    if node.epilogue or node.output in graph.wanted:
        return False
    constants = [graph[t] for t in node.inputs[1:]]
    is_plain = all(t.is_constant and t.scale is None for t in constants)
    return is_plain and graph[node.output].shape[-1] % LANES == 0 and _is_moved(graph, node.output)


def _is_moved(graph: Graph, tensor: TensorId) -> bool:
    """Whether all that reads a tensor moves it, or is a product of matrices, perhaps after it was scaled."""
    readers = graph.consumers.get(tensor, ())
    for reader in readers:
        passes = reader.kind == "reshape" and not reader.epilogue and reader.output not in graph.wanted
        if passes or _is_scaling(graph, reader):
            if not _is_moved(graph, reader.output):
                return False
        elif reader.kind != "matmul" and not isinstance(reader.attributes, Rearrange):
            return False
    return bool(readers)


def _is_scaling(graph: Graph, node: Node) -> bool:
    """Whether a node does nothing but multiply by a number."""
    is_product = node.kind == "map" and [op.function for op in node.epilogue] == ["mul"] and len(node.inputs) == 2
    return is_product and graph[node.inputs[1]].is_constant and graph[node.inputs[1]].size == 1


def _merged(graph: Graph, layers: Sequence[Node], new: NewTensors) -> Iterator[Node]:
    """Yield the joint layer, and a slice of its result for each of ``layers``."""
    rows = graph[layers[0].output].shape[:-1]
    sizes = [graph[layer.output].shape[-1] for layer in layers]
    weights = np.concatenate([_data(graph, layer.inputs[1]) for layer in layers])
    constants = [weights]
    if any(len(layer.inputs) > 2 for layer in layers):
        biases = [_data(graph, layer.inputs[2]).reshape(-1) if len(layer.inputs) > 2 else None for layer in layers]
        zeros = [np.zeros(n, np.float32) if b is None else b for n, b in zip(sizes, biases, strict=True)]
        constants.append(np.concatenate(zeros))
    inputs = (layers[0].inputs[0], *map(new.constant, constants))
    joint = new.like(graph[layers[0].output], (*rows, sum(sizes)))
    yield replace(layers[0], inputs=inputs, output=joint.id, sources=joint_sources(*layers))
    for i, layer in enumerate(layers):
        axes = (*map(AxisMap, range(len(rows))), AxisMap(len(rows), sum(sizes[:i])))
        yield Node("rearrange", (joint.id,), layer.output, Rearrange(axes), sources=layer.sources)


def _data(graph: Graph, tensor: TensorId) -> np.ndarray:
    data = graph.constant(tensor)
    assert data is not None
    return data
