"""Multiply and add channel constants once where several nodes in a row did: normalizations that no layer takes in."""

from __future__ import annotations

import numpy as np

from tflgpu.graph.ir import EpilogueOp, Input, Node, Value, joint_sources
from tflgpu.graph.rewrite_rules import Built, Draft, Match, Rule, Rules, op
from tflgpu.passes.fold_affine import channel_change


def _merge(match: Match) -> Built:
    """``((x - m) * s) * g + b`` becomes ``x * (s * g) + (b - m * s * g)``: two functions at most."""
    graph, chain = match.graph, [match.node]
    after = graph.sole_consumer(match.node.output)
    if after is not None and after.inputs[0] == match.node.output and _is_change(graph, after):
        return None  # its last node is another one
    while (before := graph.producer.get(chain[0].inputs[0])) is not None and _is_change(graph, before):
        if graph.sole_consumer(before.output) is None:
            break
        chain.insert(0, before)
    scale, offset = np.ones(1), np.zeros(1)
    for node in chain:
        change = channel_change(graph, node)
        assert change is not None
        scale, offset = scale * change[0], offset * change[0] + change[1]
    steps = [
        (f, value.astype(np.float32))
        for f, value, none in (("mul", scale, 1), ("add", offset, 0))
        if (value != none).any()
    ]
    if not 0 < len(steps) < len(chain) or not all(np.isfinite(value).all() for _, value in steps):
        return None
    rank = len(graph[match.node.output].shape)
    constants = [value.reshape(value.shape[-rank:] if rank else ()) for _, value in steps]
    epilogue = tuple(EpilogueOp(f, (Value(k), Input(k + 1))) for k, (f, _) in enumerate(steps))
    inputs = (chain[0].inputs[0], *map(graph.new.constant, constants))
    return [Node("map", inputs, match.node.output, None, epilogue, joint_sources(*chain))]


def _is_change(graph: Draft, node: Node) -> bool:
    return len(node.epilogue) == 1 and channel_change(graph, node) is not None


merge_affine = Rules((Rule("merge_affine", op("map", where=_is_change), _merge),))
