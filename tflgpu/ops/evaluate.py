"""Evaluates elementwise and data-moving nodes, reductions and sorts in numpy, to fold constants at compile time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tflgpu.graph.ir import Array, Node, Operand, Tensor, Value
from tflgpu.graph.layout import Shape
from tflgpu.ops.arithmetic.reduction import Reduce
from tflgpu.ops.arithmetic.reduction import evaluate as reduced
from tflgpu.ops.arithmetic.scan import TopK, ranked
from tflgpu.ops.epilogue_ops import apply, computed
from tflgpu.ops.movement.indexing import Gather
from tflgpu.ops.movement.indexing import evaluate_gather as gathered
from tflgpu.ops.movement.shaping import Concatenate, Rearrange, Strided
from tflgpu.ops.movement.shaping import evaluate_rearranged as rearranged
from tflgpu.ops.movement.shaping import evaluate_strided as in_strides

# The most elements of a folded result that is larger than all inputs, because a constant takes memory.
MAX_GROWTH_ELEMENTS = 1 << 20


def value_of(node: Node, inputs: Sequence[Tensor], output: Tensor) -> Array | None:
    """Return the value of a node.

    Args:
        node: Any node.
        inputs: Its inputs.
        output: Its output.

    Returns:
        None if an input is not constant, the result is too large, or the kind is another.
    """
    if not inputs or not all(t.is_constant for t in inputs):
        return None
    if output.size > max(MAX_GROWTH_ELEMENTS, *(t.size for t in inputs)):
        return None
    arrays = [t.data for t in inputs if t.data is not None]
    own = arrays[: len(arrays) - len(node.epilogue_inputs)]  # what the kernel reads, ahead of the epilogue's
    match node.attributes:
        case Reduce(function, axes):
            base: Array | None = reduced(function, own[0], axes).astype(computed(own[0]).dtype)
        case TopK() as top_k:
            base = ranked(top_k, own[0], output.shape[-1])
        case _:
            base = moved(node, own, output.shape)
    return None if base is None else np.array(run_epilogue(node, base, arrays), output.dtype, order="C")


def moved(node: Node, inputs: Sequence[Array], shape: Shape) -> Array | None:
    """Return what a node's kernel moves to its result; None for a kernel that computes.

    Args:
        node: Any node.
        inputs: The arrays that the kernel reads, without those of the epilogue; of any element type.
        shape: The result's.
    """
    match node.attributes:
        case Rearrange() as rearrange:
            return rearranged(rearrange, inputs[0], shape)
        case Strided() as strided:
            return in_strides(strided, inputs[0], shape)
        case Gather() as gather:
            return gathered(gather, inputs, shape)
        case Concatenate(axis):
            return np.concatenate(inputs, axis)
        case None if node.kind == "reshape":
            return inputs[0].reshape(shape)
        case None if node.kind == "map":
            return np.broadcast_to(inputs[0], shape)
    return None


def run_epilogue(node: Node, base: Array, inputs: list[Array]) -> Array:
    """Return the result of a node's epilogue, floats in double precision.

    Args:
        node: Any node.
        base: The kernel's own result.
        inputs: All inputs of the node.
    """
    if not node.epilogue:
        return base
    values: list[Array] = [computed(base)]

    def read(operand: Operand) -> Array:
        return values[operand.index] if isinstance(operand, Value) else computed(inputs[operand.index])

    for op in node.epilogue:
        values.append(apply(op.function, [*map(read, op.operands)], op.parameters))
    return values[-1]
