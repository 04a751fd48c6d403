"""Compute at compile time the nodes that depend on constants only."""

from __future__ import annotations

from dataclasses import replace

from tflgpu.graph.ir import Graph, Node
from tflgpu.ops.evaluate import value_of


def fold_constants(graph: Graph) -> Graph:
    """Replace elementwise and data-moving nodes of constants by constants."""
    tensors = dict(graph.tensors)
    fresh = graph.fresh_ids()
    kept: list[Node] = []
    for node in graph.nodes:
        output = tensors[node.output]
        value = value_of(node, [tensors[i] for i in node.inputs], output)
        if value is None:
            kept.append(node)
        elif node.output in graph.wanted:  # a kernel has to write it
            constant = replace(output, id=next(fresh), data=value)
            tensors[constant.id] = constant
            kept.append(Node("map", (constant.id,), node.output, sources=node.sources))
        else:
            tensors[node.output] = replace(output, data=value)
    return graph.with_nodes(kept, tensors.values())
