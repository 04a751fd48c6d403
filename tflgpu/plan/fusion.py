"""Join a pointwise convolution and the depthwise one that reads it, for devices where one kernel of both is faster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

import numpy as np

from tflgpu.ir import Graph, Input, Node, Operand, Step, Tensor, TensorId, joint_sources
from tflgpu.layout import LANES
from tflgpu.ops.convolution import Convolution, Depthwise, PointwiseDepthwise
from tflgpu.ops.convolution_kernels import UNROLLED_TAPS, depthwise_parts
from tflgpu.ops.fused_kernels import fused_parts
from tflgpu.ops.kernel import Storage
from tflgpu.ops.matrix_kernels import matrix_parts
from tflgpu.ops.steps import FUNCTIONS
from tflgpu.plan.boundary import storages
from tflgpu.target import Target

# Cycles, as in group_work.py, from the end of one kernel to the beginning of the next, by executor.
NEXT_KERNEL = {"persistent": 1300.0, "launch": 4000.0}


def fuse_depthwise(graph: Graph, target: Target) -> Graph:
    """One node for each such pair that runs faster so on ``target``; the conversions of ``graph`` are in place."""
    if not target.matrix_units or target.storage != "half":
        return graph
    storage = storages(graph, target)
    fresh = graph.fresh_ids()
    zeros: list[Tensor] = []
    nodes: dict[TensorId, Node] = {}

    def bias(node: Node) -> TensorId:
        if _kernel_inputs(node) > 2:
            return node.inputs[2]
        channels = graph[node.output].shape[-1]
        zeros.append(Tensor(next(fresh), "", (channels,), data=np.zeros(channels, np.float32)))
        return zeros[-1].id

    for node in graph.nodes:
        first = nodes.get(node.inputs[0]) if node.inputs else None
        if first is not None and _fusable(graph, storage, first, node) and _is_faster(storage, first, node, target):
            del nodes[first.output]
            nodes[node.output] = _joined(first, node, bias(first), bias(node))
        else:
            nodes[node.output] = node
    return graph.with_nodes(nodes.values(), zeros)


def _kernel_inputs(node: Node) -> int:
    """How many inputs the kernel of a convolution reads; those of its steps come after them."""
    return min(node.step_inputs, default=len(node.inputs))


def _fusable(graph: Graph, storage: Mapping[TensorId, Storage], pointwise: Node, depthwise: Node) -> bool:
    """Whether one kernel can give the result of both."""
    first, second = pointwise.attributes, depthwise.attributes
    if not isinstance(first, Convolution) or not isinstance(second, Depthwise):
        return False
    between, image = pointwise.output, storage[pointwise.inputs[0]]
    return (
        first.window.is_pointwise
        and first.groups == 1
        and second.multiplier == 1
        and prod(second.window.kernel) <= UNROLLED_TAPS
        and graph[pointwise.inputs[1]].is_constant
        and graph[depthwise.inputs[1]].is_constant
        and graph.sole_consumer(between) is not None
        and image.type == storage[between].type == "half"
        and not image.linear
        and not any(graph[t].precise for t in (*pointwise.inputs, *depthwise.inputs, depthwise.output))
        and not pointwise.step_inputs
        and _steps_stay_inside(pointwise, storage[between].channels)
    )


def _steps_stay_inside(pointwise: Node, channels: int) -> bool:
    """Whether all steps compute floats, and zeros in the lanes past the last channel."""
    functions = [FUNCTIONS[step.function] for step in pointwise.steps]
    floats = all(f.result == "first" for f in functions)
    return floats and (channels % LANES == 0 or all(f.keeps_zero for f in functions))


def _is_faster(storage: Mapping[TensorId, Storage], pointwise: Node, depthwise: Node, target: Target) -> bool:
    first, second = pointwise.attributes, depthwise.attributes
    assert isinstance(first, Convolution) and isinstance(second, Depthwise)
    image, between, result = (storage[t] for t in (pointwise.inputs[0], pointwise.output, depthwise.output))
    joined = fused_parts(second.window, image, result, target)
    one = matrix_parts(first.window, image, between, target)[0].cycles
    _, _, other = depthwise_parts(second.window, result, target)[0]
    return bool(joined) and joined[0].cycles < one + NEXT_KERNEL[target.executor] + other


def _joined(pointwise: Node, depthwise: Node, pointwise_bias: TensorId, depthwise_bias: TensorId) -> Node:
    assert isinstance(depthwise.attributes, Depthwise)
    image, weights = pointwise.inputs[:2]
    kernel_inputs = (image, weights, pointwise_bias, depthwise.inputs[1], depthwise_bias)
    known = _kernel_inputs(depthwise)

    def moved(operand: Operand) -> Operand:
        return Input(operand.index - known + len(kernel_inputs)) if isinstance(operand, Input) else operand

    def step(original: Step) -> Step:
        return replace(original, operands=tuple(map(moved, original.operands)))

    return Node(
        "pointwise_depthwise",
        (*kernel_inputs, *depthwise.inputs[known:]),
        depthwise.output,
        PointwiseDepthwise(depthwise.attributes.window, pointwise.steps),
        tuple(map(step, depthwise.steps)),
        joint_sources(pointwise, depthwise),
    )
