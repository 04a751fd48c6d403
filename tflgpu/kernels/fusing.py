"""Parts that fusions of several nodes into one kernel share, and the lowerings of such kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tflgpu.graph.ir import EpilogueOp, Input, Node, Operand, TensorId, Value, joint_sources
from tflgpu.graph.layout import LANES
from tflgpu.graph.rewrite_rules import AnyGraph, NewTensors
from tflgpu.ops.epilogue_ops import FUNCTIONS
from tflgpu.ops.image.convolution import Convolution
from tflgpu.ops.image.window import Window


@dataclass(frozen=True)
class DepthwisePointwise:
    """A depthwise convolution with an ``epilogue`` of its own, and the pointwise one that alone reads it.

    Inputs: image NHWC, weights [1, kh, kw, channels] and bias of the depthwise convolution, weights
    [out, 1, 1, channels] and bias of the pointwise one; all but the image are constants.

    window: of the depthwise convolution. epilogue: ops that read no inputs.
    """

    window: Window
    epilogue: tuple[EpilogueOp, ...]


def is_pointwise(node: Node) -> bool:
    """Whether a node is a convolution of single pixels, in one group."""
    attributes = node.attributes
    return isinstance(attributes, Convolution) and attributes.window.is_pointwise and attributes.groups == 1


def kernel_inputs(node: Node) -> int:
    """How many inputs the kernel of a convolution reads; those of its epilogue come after them."""
    return min(node.epilogue_inputs, default=len(node.inputs))


def weights_and_bias(graph: AnyGraph, node: Node, zeros: NewTensors) -> tuple[TensorId, TensorId]:
    """Return the two constants of a convolution.

    Args:
        graph: The node's.
        node: The convolution.
        zeros: Gets a bias of zeros if there is none.
    """
    weights, *bias = node.inputs[1 : kernel_inputs(node)]
    return weights, bias[0] if bias else zeros.constant(np.zeros(graph[node.output].shape[-1], np.float32))


def epilogue_without_inputs(
    graph: AnyGraph, node: Node, *, reads_padding: bool = True
) -> tuple[EpilogueOp, ...] | None:
    """Return the epilogue of a node for the inside of a kernel, where ops read no inputs: single numbers become
    parameters.

    Args:
        graph: The node's.
        node: Its epilogue is meant.
        reads_padding: Whether the kernel reads the lanes past the last channel.

    Returns:
        None if that cannot be, if an op computes no float, or if one makes anything but zero of lanes that are read.
    """
    padded = reads_padding and graph[node.output].shape[-1] % LANES != 0
    epilogue = []
    for op in node.epilogue:
        function = FUNCTIONS[op.function]
        if function.result != "first" or (padded and not function.keeps_zero):
            return None
        values = tuple(o for o in op.operands if isinstance(o, Value))
        numbers = [graph[node.inputs[o.index]] for o in op.operands if isinstance(o, Input)]
        if op.operands[: len(values)] != values or any(n.size != 1 or not n.is_constant for n in numbers):
            return None
        constants = tuple(float(n.data.item()) for n in numbers if n.data is not None)
        epilogue.append(EpilogueOp(op.function, values, constants + op.parameters))
    return tuple(epilogue)


def inner_epilogue(epilogue: Sequence[EpilogueOp]) -> list[dict[str, object]]:
    """Return what templates see of an epilogue between two operators of one kernel.

    Args:
        epilogue: Ops on floats that read no input.
    """
    return [
        {
            "index": k + 1,
            "function": op.function,
            "operands": [{"value": o.index} for o in op.operands if isinstance(o, Value)],
            "parameters": list(op.parameters),
            "type": "float",
            "wide": False,
        }
        for k, op in enumerate(epilogue)
    ]


def joined_node(kind: str, attributes: object, first: Node, second: Node, inputs: tuple[TensorId, ...]) -> Node:
    """Return the node that computes two others, the second of which alone reads the first.

    After its inputs come those of the second one's epilogue, which stays the epilogue.

    Args:
        kind: The new node's.
        attributes: The new node's.
        first: The first node.
        second: The second node.
        inputs: Those that the kernel reads.
    """
    return Node(
        kind,
        (*inputs, *second.inputs[kernel_inputs(second) :]),
        second.output,
        attributes,
        epilogue_behind(second, len(inputs)),
        joint_sources(first, second),
    )


def epilogue_behind(node: Node, inputs: int) -> tuple[EpilogueOp, ...]:
    """Return the epilogue of a node for a kernel that reads other inputs first; its own inputs come after them.

    Args:
        node: Its epilogue is meant.
        inputs: The number of inputs that the kernel reads.
    """
    known = kernel_inputs(node)

    def place(operand: Operand) -> Operand:
        return Input(operand.index - known + inputs) if isinstance(operand, Input) else operand

    return tuple(op.moved(place) for op in node.epilogue)
