"""Join a depthwise convolution and the pointwise one that reads it, for devices where one kernel of both is faster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

import numpy as np

from tflgpu.ir import Graph, Input, Node, Operand, Step, Tensor, TensorId, joint_sources
from tflgpu.ops.convolution import Convolution, Depthwise, SeparableConvolution
from tflgpu.ops.convolution_kernels import UNROLLED_TAPS, depthwise_part
from tflgpu.ops.kernel import Storage
from tflgpu.ops.matrix_kernels import matrix_part
from tflgpu.ops.packed_weights import SIDE
from tflgpu.ops.separable_kernels import separable_part
from tflgpu.ops.steps import FUNCTIONS
from tflgpu.plan.boundary import storages
from tflgpu.target import Target

# Cycles from the end of one kernel to the beginning of the next, be it a barrier or a launch.
NEXT_KERNEL = 1300


def fuse_separable(graph: Graph, target: Target) -> Graph:
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


def _fusable(graph: Graph, storage: Mapping[TensorId, Storage], depthwise: Node, pointwise: Node) -> bool:
    """Whether the pair can be one kernel that gives the same result."""
    first, second = depthwise.attributes, pointwise.attributes
    if not isinstance(first, Depthwise) or not isinstance(second, Convolution):
        return False
    between, image = depthwise.output, storage[depthwise.inputs[0]]
    tensors = (*depthwise.inputs, *pointwise.inputs, pointwise.output)
    return (
        first.multiplier == 1
        and prod(first.window.kernel) <= UNROLLED_TAPS
        and second.window.is_pointwise
        and second.groups == 1
        and graph[depthwise.inputs[1]].is_constant
        and graph[pointwise.inputs[1]].is_constant
        and graph.sole_consumer(between) is not None
        and image.type == storage[between].type == "half"
        and not image.linear
        and not any(graph[t].precise for t in tensors)
        and not depthwise.step_inputs
        and _steps_are_simple(depthwise, storage[between].channels)
    )


def _steps_are_simple(depthwise: Node, channels: int) -> bool:
    """Whether all steps compute floats, and zeros of the channels that a block of 16 has past the last."""
    functions = [FUNCTIONS[step.function] for step in depthwise.steps]
    floats = all(f.result == "first" for f in functions)
    return floats and (channels % SIDE == 0 or all(f.keeps_zero for f in functions))


def _is_faster(storage: Mapping[TensorId, Storage], depthwise: Node, pointwise: Node, target: Target) -> bool:
    first, second = depthwise.attributes, pointwise.attributes
    assert isinstance(first, Depthwise) and isinstance(second, Convolution)
    image, between, result = (storage[t] for t in (depthwise.inputs[0], depthwise.output, pointwise.output))
    joined = separable_part(first.window, image, result, target)
    _, _, one = depthwise_part(first.window, between, target)
    other = matrix_part(second.window, between, result, target).cycles
    return joined is not None and joined.cycles < one + NEXT_KERNEL + other


def _joined(depthwise: Node, pointwise: Node, depthwise_bias: TensorId, pointwise_bias: TensorId) -> Node:
    assert isinstance(depthwise.attributes, Depthwise)
    image, depthwise_weights = depthwise.inputs[:2]
    kernel_inputs = (image, depthwise_weights, depthwise_bias, pointwise.inputs[1], pointwise_bias)
    known = _kernel_inputs(pointwise)

    def moved(operand: Operand) -> Operand:
        return Input(operand.index - known + len(kernel_inputs)) if isinstance(operand, Input) else operand

    def step(original: Step) -> Step:
        return replace(original, operands=tuple(map(moved, original.operands)))

    return Node(
        "separable_convolution",
        (*kernel_inputs, *pointwise.inputs[known:]),
        pointwise.output,
        SeparableConvolution(depthwise.attributes.window, depthwise.steps),
        tuple(map(step, pointwise.steps)),
        joint_sources(depthwise, pointwise),
    )
