"""Movements that the kernels of elementwise functions do themselves, as they read their operands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tflgpu.graph.ir import Node, TensorId, joint_sources
from tflgpu.graph.rewrite_rules import Built, Draft, Match, Rule, op
from tflgpu.kernels.access import keeps_vec4s
from tflgpu.kernels.gpu import GPU
from tflgpu.kernels.kernel import Storage
from tflgpu.kernels.rewriting import Planning
from tflgpu.ops.movement.shaping import Strided

# Readers of a movement at most: each of them moves its elements again.
MAX_READERS = 2


@GPU.rewrite("read", fuses=True)
def read_moved(planning: Planning) -> Planning:
    """Read operands of map nodes where they lie before a movement of whole vec4s, if nothing else reads the result."""

    def read(match: Match) -> Built:
        producers = ((index, match.graph.producer.get(tensor)) for index, tensor in enumerate(match.node.inputs))
        moved = {i: p for i, p in producers if p and _is_read_only_by_maps(match.graph, planning.storage, p)}
        return [_reading(match.node, moved)] if moved else None

    return planning.rewritten(Rule("read_moved", op("map"), read))


def _is_read_only_by_maps(graph: Draft, storage: Mapping[TensorId, Storage], node: Node) -> bool:
    if node.kind != "strided" or node.in_place or node.epilogue or node.output in graph.wanted:
        return False
    assert isinstance(node.attributes, Strided)
    source, output = storage[node.inputs[0]], storage[node.output]
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


def _reading(node: Node, moved: Mapping[int, Node]) -> Node:
    """Return a node that reads the sources of movements. moved: by the number of the input."""
    inputs = tuple(moved[i].inputs[0] if i in moved else tensor for i, tensor in enumerate(node.inputs))
    views = (*node.views, *((index, movement.attributes) for index, movement in moved.items()))
    return replace(node, inputs=inputs, views=views, sources=joint_sources(*moved.values(), node))
