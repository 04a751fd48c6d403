"""Compute at compile time the nodes that depend on constants only."""

from __future__ import annotations

from dataclasses import replace

from tflgpu.graph.ir import Node
from tflgpu.graph.rewrite_rules import Built, Draft, Match, Rule, Rules, op
from tflgpu.ops.evaluate import value_of


def _fold(match: Match) -> Built:
    """Replace an elementwise or data-moving node of constants by a constant."""
    graph, node = match.graph, match.node
    output = graph[node.output]
    value = value_of(node, [graph[i] for i in node.inputs], output)
    if value is None:
        return None
    constant = graph.new.add(replace(output, data=value)).id
    # A kernel has to write what is needed after the last node.
    return [Node("map", (constant,), node.output, sources=node.sources)] if node.output in graph.wanted else constant


def _computes(graph: Draft, node: Node) -> bool:
    return node.kind != "map" or bool(node.epilogue) or node.output not in graph.wanted


fold_constants = Rules((Rule("fold_constants", op(where=_computes), _fold),))
