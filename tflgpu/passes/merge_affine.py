"""Multiply and add channel constants once where several nodes in a row did: normalizations that no layer takes in."""

from __future__ import annotations

import numpy as np

from tflgpu.graph.ir import EpilogueOp, Graph, Input, Node, TensorId, Value, joint_sources
from tflgpu.graph.new_tensors import NewTensors
from tflgpu.passes.fold_affine import channel_change


def merge_affine(graph: Graph) -> Graph:
    """``((x - m) * s) * g + b`` becomes ``x * (s * g) + (b - m * s * g)``: two functions at most."""
    chains: dict[TensorId, list[Node]] = {}  # by what the last node of each writes
    for node in graph.nodes:
        if len(node.epilogue) == 1 and channel_change(graph, node) is not None:
            is_next = node.inputs[0] in chains and graph.sole_consumer(node.inputs[0]) is not None
            chains[node.output] = [*(chains.pop(node.inputs[0]) if is_next else []), node]
    new = NewTensors(graph)
    merged: dict[TensorId, Node] = {}
    dropped: set[TensorId] = set()
    for chain in chains.values():
        changes = [channel_change(graph, node) for node in chain]
        scale, offset = np.ones(1), np.zeros(1)
        for change in changes:
            assert change is not None
            scale, offset = scale * change[0], offset * change[0] + change[1]
        steps = [
            (f, value.astype(np.float32))
            for f, value, none in (("mul", scale, 1), ("add", offset, 0))
            if (value != none).any()
        ]
        if not 0 < len(steps) < len(chain) or not all(np.isfinite(value).all() for _, value in steps):
            continue
        rank = len(graph[chain[-1].output].shape)
        constants = [value.reshape(value.shape[-rank:] if rank else ()) for _, value in steps]
        epilogue = tuple(EpilogueOp(f, (Value(k), Input(k + 1))) for k, (f, _) in enumerate(steps))
        inputs = (chain[0].inputs[0], *map(new.constant, constants))
        merged[chain[-1].output] = Node("map", inputs, chain[-1].output, None, epilogue, joint_sources(*chain))
        dropped.update(node.output for node in chain[:-1])
    nodes = (merged.get(node.output, node) for node in graph.nodes if node.output not in dropped)
    return graph.with_nodes(nodes, new)
