"""The outputs of a graph in numpy: what its passes have made of a network, without a kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tests.ops import reference, windows
from tests.ops.windows import Window
from tests.safety.drawn.blocks.writer import Array
from tflgpu.graph.ir import Graph, Node, Tensor
from tflgpu.ops.arithmetic.matmul import MatMul
from tflgpu.ops.arithmetic.reduction import LayerNorm, Softmax
from tflgpu.ops.evaluate import run_epilogue, value_of
from tflgpu.ops.image import window as of_graphs
from tflgpu.ops.image.convolution import Convolution, Depthwise
from tflgpu.ops.image.resize import Resize


def outputs_of_graph(graph: Graph, inputs: Sequence[Array]) -> list[Array]:
    values = dict(zip(graph.inputs, inputs, strict=True))
    for node in graph.nodes:
        given = [graph[t] if graph[t].is_constant else replace(graph[t], data=values[t]) for t in node.inputs]
        value = value_of(node, given, graph[node.output])
        values[node.output] = _computed(node, given, graph[node.output]) if value is None else value
    return [values[t] for t in graph.outputs]


def _computed(node: Node, given: Sequence[Tensor], output: Tensor) -> Array:
    arrays = [np.asarray(t.data) for t in given]
    x, *others = (a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays)
    # A bias is an input that no epilogue op reads.
    has_bias = len(others) > 1 and 2 not in node.epilogue_inputs
    bias = others[1] if has_bias else np.zeros(())
    match node.attributes:
        case Convolution(window):
            base = windows.conv_2d(_padded(x, window), others[0], bias, _window(window))
        case Depthwise(window):
            base = windows.depthwise_conv_2d(_padded(x, window), others[0], bias, _window(window))
        case None if node.kind == "fully_connected":
            base = (x.reshape(-1, others[0].shape[1]) @ others[0].T + bias).reshape(output.shape)
        case MatMul(left, right):
            base = (np.swapaxes(x, -1, -2) if left else x) @ (np.swapaxes(others[0], -1, -2) if right else others[0])
        case Softmax(beta, False, 1):
            base = reference.softmax(x, beta)
        case LayerNorm(epsilon, False):
            base = x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon)
        case LayerNorm(epsilon):
            base = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + epsilon)
        case Resize(_, offset):
            base = reference.resize_bilinear(x, (output.shape[1], output.shape[2]), False, any(offset))
        case _:
            raise NotImplementedError(f"{node.kind} {node.attributes}")
    return np.asarray(run_epilogue(node, base.reshape(output.shape), arrays)).astype(output.dtype)


def _window(window: of_graphs.Window) -> Window:
    """The window over an image that is padded already."""
    return Window(window.kernel, window.stride, window.dilation)


def _padded(image: Array, window: of_graphs.Window) -> Array:
    top, bottom, left, right = window.padding
    return np.pad(image, ((0, 0), (top, bottom), (left, right), (0, 0)))
