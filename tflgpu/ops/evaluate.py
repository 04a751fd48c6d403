"""Evaluates elementwise and data-moving nodes and reductions in numpy, to fold constants at compile time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tflgpu.graph.ir import Array, Node, Operand, Tensor, Value
from tflgpu.ops.arithmetic.reduction import Reduce
from tflgpu.ops.arithmetic.reduction import evaluate as reduced
from tflgpu.ops.epilogue_ops import apply, computed
from tflgpu.ops.movement.gather import Gather
from tflgpu.ops.movement.gather import evaluate as gathered
from tflgpu.ops.movement.shaping import Concatenate, Rearrange
from tflgpu.ops.movement.shaping import evaluate as rearranged
from tflgpu.ops.movement.strided import Strided
from tflgpu.ops.movement.strided import evaluate as in_strides

# The most elements of a folded result that is larger than all inputs, because a constant takes memory.
MAX_GROWTH_ELEMENTS = 1 << 20


def value_of(node: Node, inputs: Sequence[Tensor], output: Tensor) -> Array | None:
    """The value of a node; None if an input is not constant, the result is too large, or the kind is another."""
    if not inputs or not all(t.is_constant for t in inputs):
        return None
    if output.size > max(MAX_GROWTH_ELEMENTS, *(t.size for t in inputs)):
        return None
    arrays = [t.data for t in inputs if t.data is not None]
    own = arrays[: len(arrays) - len(node.epilogue_inputs)]  # what the kernel reads, ahead of the epilogue's
    match node.attributes:
        case Rearrange() as rearrange:
            base = rearranged(rearrange, arrays[0], output.shape)
        case Strided() as strided:
            base = in_strides(strided, arrays[0], output.shape)
        case Gather() as gather:
            base = gathered(gather, own, output.shape)
        case Concatenate(axis):
            base = np.concatenate(own, axis)
        case Reduce(function, axes):
            base = reduced(function, arrays[0], axes).astype(computed(arrays[0]).dtype)
        case None if node.kind == "reshape":
            base = arrays[0].reshape(output.shape)
        case None if node.kind == "map":
            base = np.broadcast_to(arrays[0], output.shape)
        case _:
            return None
    return np.array(run_epilogue(node, base, arrays), output.dtype, order="C")


def run_epilogue(node: Node, base: Array, inputs: list[Array]) -> Array:
    """The result of a node's epilogue, floats in double precision. base: the kernel's own result."""
    if not node.epilogue:
        return base
    values: list[Array] = [computed(base)]

    def read(operand: Operand) -> Array:
        return values[operand.index] if isinstance(operand, Value) else computed(inputs[operand.index])

    for op in node.epilogue:
        values.append(apply(op.function, [*map(read, op.operands)], op.parameters))
    return values[-1]
