"""Movements that the kernels of elementwise functions do themselves, as they read their operands."""

from __future__ import annotations

from dataclasses import replace

from tflgpu.graph.ir import Node, TensorId
from tflgpu.kernels.access import keeps_vec4s
from tflgpu.kernels.gpu import GPU
from tflgpu.kernels.rewriting import Planning
from tflgpu.ops.movement.strided import Strided

# Readers of a movement at most: each of them moves its elements again.
MAX_READERS = 2


@GPU.rewrite("read", fuses=True)
def read_moved(planning: Planning) -> Planning:
    """Read operands of map nodes where they lie before a movement of whole vec4s, if nothing else reads the result."""
    graph = planning.graph
    moved = {node.output: node for node in graph.nodes if _is_read_only_by_maps(planning, node)}
    nodes = (_reading(node, moved) for node in graph.nodes if node.output not in moved)
    return planning.with_nodes(nodes) if moved else planning


def _is_read_only_by_maps(planning: Planning, node: Node) -> bool:
    if node.kind != "strided" or node.in_place or node.epilogue or node.output in planning.graph.wanted:
        return False
    assert isinstance(node.attributes, Strided)
    graph, (source, output) = planning.graph, (planning.storage[t] for t in (node.inputs[0], node.output))
    readers = graph.consumers.get(node.output, ())
    shape = graph[node.output].shape
    return (
        0 < len(readers) <= MAX_READERS
        and all(reader.kind == "map" and graph[reader.output].shape == shape for reader in readers)
        and source.form == output.form
        and not source.linear
        and not output.linear
        and keeps_vec4s(node.attributes, source.geometry, output.geometry)
    )


def _reading(node: Node, moved: dict[TensorId, Node]) -> Node:
    """Return a node that reads the sources of these movements."""
    movements = [(index, moved[tensor]) for index, tensor in enumerate(node.inputs) if tensor in moved]
    if not movements:
        return node
    sources = {index: movement.inputs[0] for index, movement in movements}
    inputs = tuple(sources.get(index, tensor) for index, tensor in enumerate(node.inputs))
    views = (*node.views, *((index, movement.attributes) for index, movement in movements))
    own = tuple(dict.fromkeys(s for n in (*(movement for _, movement in movements), node) for s in n.sources))
    return replace(node, inputs=inputs, views=views, sources=own)
