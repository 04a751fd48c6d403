"""Depthwise convolutions of few channels and large windows as dense ones, for devices with matrix units.

An image of up to four channels is one vec4 a pixel. A product takes all of it anyway, so it costs nothing more if each
output channel sees all of them, most through zeros.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np

from tflgpu.graph.ir import Array, Node, Tensor
from tflgpu.kernels.gpu.divided.few_channels import fastest
from tflgpu.kernels.gpu.divided.shared_sums import least_cycles
from tflgpu.kernels.mma import MMA
from tflgpu.kernels.request import Request
from tflgpu.kernels.rewriting import Planning
from tflgpu.ops.image.convolution import Convolution, Depthwise
from tflgpu.target import corrected


@MMA.rewrite("replace")
def make_dense(planning: Planning) -> Planning:
    """With dense convolutions for depthwise ones wherever that is faster."""
    nodes: list[Node] = []
    tensors: list[Tensor] = []
    graph, fresh = planning.graph, planning.graph.fresh_ids()
    for node in graph.nodes:
        request = planning.request(node)
        if not _is_of_one_slice(request):
            nodes.append(node)
            continue
        weights = dense_weights(request)
        tensor = Tensor(next(fresh), "", weights.shape, weights.dtype.name, weights)
        dense = _dense(request, tensor)
        dense_request = replace(request, node=dense, graph=graph.with_nodes([dense], [tensor]))
        if _cycles(dense_request) < corrected("gpu/depthwise_window of one slice", _cycles(request)):
            nodes.append(dense)
            tensors.append(tensor)
        else:
            nodes.append(node)
    return planning.with_nodes(nodes, tensors)


def _is_of_one_slice(request: Request) -> bool:
    node = request.node
    if not isinstance(node.attributes, Depthwise) or node.kind != "depthwise" or 0 in node.epilogue_inputs:
        return False
    return request.value(1) is not None and request.input(0).vector == "float" and request.input(0).slices == 1


def dense_weights(request: Request) -> Array:
    """[1, kh, kw, channels * multiplier] -> [channels * multiplier, kh, kw, channels]."""
    attributes, weights = request.node.attributes, request.constant(1)
    assert isinstance(attributes, Depthwise)
    _, kh, kw, out = weights.shape
    dense = np.zeros((out, kh, kw, request.input(0).channels), weights.dtype)
    outputs = np.arange(out)
    dense[outputs, :, :, outputs // attributes.multiplier] = weights[0].transpose(2, 0, 1)
    return dense


def _dense(request: Request, weights: Tensor) -> Node:
    node, attributes = request.node, request.node.attributes
    assert isinstance(attributes, Depthwise)
    inputs = (node.inputs[0], weights.id, *node.inputs[2:])
    return replace(node, kind="convolution", inputs=inputs, attributes=Convolution(attributes.window))


def _cycles(request: Request) -> float:
    """Of a node in one kernel or in several, by the cost model, as far as that knows them."""
    known = least_cycles(request)
    if not isinstance(request.node.attributes, Convolution):
        return known if known < inf else 0.0
    widened = fastest(request, request.graph.fresh_ids())
    return known if widened is None else widened[1]
