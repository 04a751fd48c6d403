"""Growing concatenations: each begins with all of the one before it, so that all have the memory of the last one."""

from __future__ import annotations

from dataclasses import replace

from tflgpu.graph.ir import Graph, Node, TensorId
from tflgpu.graph.layout import LANES, Geometry
from tflgpu.ops.movement.shaping import Concatenate


def nest_concatenations(graph: Graph) -> Graph:
    """Let a concatenation read an earlier one where it begins with the inputs of that, as those of a DenseNet do."""
    known: dict[tuple[int, tuple[TensorId, ...]], TensorId] = {}  # by the axis and the inputs
    nodes: list[Node] = []
    for original in graph.nodes:
        node = original
        if isinstance(node.attributes, Concatenate) and not node.epilogue:
            axis = node.attributes.axis
            lengths = range(len(node.inputs) - 1, 1, -1)
            before = next((n for n in lengths if (axis, node.inputs[:n]) in known), None)
            known.setdefault((axis, node.inputs), node.output)
            if before is not None:
                node = replace(node, inputs=(known[axis, node.inputs[:before]], *node.inputs[before:]))
        nodes.append(node)
    return graph.with_nodes(nodes)


def is_contiguous(graph: Graph, node: Node) -> bool:
    """Whether a node only puts its inputs one after the other, and does so in memory as well."""
    if not isinstance(node.attributes, Concatenate) or node.epilogue:
        return False
    axis, shape = node.attributes.axis, graph[node.output].shape
    batch_axes = Geometry(shape).batch_axes
    if axis < len(batch_axes):
        return all(extent == 1 for extent in shape[:axis])
    sizes = [graph[t].shape[axis] for t in node.inputs]
    return (
        axis == len(shape) - 1
        and all(extent == 1 for extent in batch_axes)
        and all(size % LANES == 0 for size in sizes[:-1])
    )
