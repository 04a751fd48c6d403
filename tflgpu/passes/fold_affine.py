"""Fold factors and offsets of channels into the weights of the convolution before them, or into one another."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tflgpu.graph.ir import Array, EpilogueOp, Input, Node, Value, epilogue_after_first, joint_sources
from tflgpu.graph.rewrite_rules import Built, Draft, Match, Rule, Rules, op
from tflgpu.ops.image.convolution import output_channel_axis


def _fold(match: Match) -> Built:
    """``conv(x) * m + a`` becomes one convolution: converters can leave batch norms in this form."""
    graph, layer, reader = match.graph, match["layer"], match.node
    change, axis = channel_change(graph, reader), output_channel_axis(layer)
    weights = graph.constant(layer.inputs[1])
    if change is None or axis is None or weights is None:
        return None
    scale, offset = change
    channels = weights.shape[axis]
    bias = graph.constant(layer.inputs[2]) if len(layer.inputs) > 2 else np.zeros(channels, np.float32)
    if bias is None:
        return None
    along = [-1 if i == axis else 1 for i in range(weights.ndim)]
    scaled = weights.astype(np.float64) * scale.reshape(along) if scale.size > 1 else weights * scale.reshape(())
    folded = [scaled.astype(np.float32), (bias.reshape(-1) * scale + offset).astype(np.float32)]
    return [
        replace(
            layer,
            inputs=(layer.inputs[0], *map(graph.new.constant, folded)),
            output=reader.output,
            epilogue=epilogue_after_first(reader.epilogue),
            sources=joint_sources(layer, reader),
        )
    ]


LAYERS = "convolution|transpose_convolution|depthwise|fully_connected"

fold_affine = Rules((Rule("fold_affine", op("map", op(LAYERS, name="layer", plain=True, alone=True)), _fold),))


def channel_change(graph: Draft, node: Node) -> tuple[Array, Array] | None:
    """Return the factor and the offset of a map node whose first epilogue op scales or shifts channels.

    Only of floats: products of integers wrap around, and those of 64 bits are not exact in double.

    Args:
        graph: The node's graph.
        node: Any node.

    Returns:
        Both in double, of shape [1] or [channels]; None for any other node.
    """
    if node.kind != "map" or not node.epilogue or len(node.inputs) != 2:
        return None
    if any(graph[t].dtype != "float32" for t in node.inputs):
        return None
    op, constant = node.epilogue[0], graph[node.inputs[1]]
    shape = graph[node.output].shape
    if op.function not in ("add", "sub", "mul") or constant.data is None or graph[node.inputs[0]].shape != shape:
        return None
    if any(Value(0) in later.operands for later in node.epilogue[1:]):
        return None
    if constant.size > 1 and (constant.size != constant.shape[-1] or constant.size != shape[-1]):
        return None
    value, one, zero = constant.data.reshape(-1).astype(np.float64), np.ones(1), np.zeros(1)
    match op.function, op.operands:
        case "mul", _:
            return value, zero
        case "add", _:
            return one, value
        case "sub", (Value(0), Input(1)):
            return one, -value
        case "sub", (Input(1), Value(0)):
            return -one, value
    return None


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
