"""Remove nodes that change nothing."""

from __future__ import annotations

from dataclasses import replace

from tflgpu.graph.ir import Graph, Node, TensorId
from tflgpu.graph.layout import keeps_bytes
from tflgpu.ops.arithmetic.reduction import Reduce
from tflgpu.ops.movement.shaping import AxisMap, Rearrange


def simplify(graph: Graph) -> Graph:
    """Remove identities, and mark reshapes that leave every byte in place."""
    alias: dict[TensorId, TensorId] = {}
    kept: list[Node] = []
    for original in graph.nodes:
        node = replace(original, inputs=tuple(alias.get(i, i) for i in original.inputs))
        source = node.inputs[0] if node.inputs else None
        if source is not None and _is_identity(graph, node) and node.output not in graph.wanted:
            alias[node.output] = source
        elif node.kind == "reshape" and keeps_bytes(graph[node.inputs[0]].shape, graph[node.output].shape):
            kept.append(replace(node, in_place=True))
        else:
            kept.append(node)
    return graph.with_nodes(kept)


def _is_identity(graph: Graph, node: Node) -> bool:
    source, output = graph[node.inputs[0]], graph[node.output]
    # Other tensors are views of the source then, or are computed where it lies: it must be stored as the output would.
    if node.epilogue or (source.shape, source.dtype) != (output.shape, output.dtype):
        return False
    match node.attributes:
        case Rearrange(axes):
            return all(m == AxisMap(i) for i, m in enumerate(axes))
        case Reduce("mean", axes):
            return all(graph[node.inputs[0]].shape[a] == 1 for a in axes)
    return node.kind in ("map", "reshape")
