"""Fold a multiplication or addition of channel constants into the weights of the convolution before it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tflgpu.graph.ir import Array, Input, Node, Value, epilogue_after_first, joint_sources
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
