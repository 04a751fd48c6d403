"""Compute at compile time what depends on constants alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tflgpu.ir import Array, Graph, Node, Operand, Tensor, Value
from tflgpu.ops.shaping import Concatenate, Rearrange, evaluate
from tflgpu.ops.steps import FUNCTIONS

# A constant is worth storing instead of computing only while it stays small beside its sources.
MAX_GROWTH_ELEMENTS = 1 << 20


def fold_constants(graph: Graph) -> Graph:
    """Replace elementwise and data-moving nodes of constants by their values."""
    tensors = dict(graph.tensors)
    kept: list[Node] = []
    for node in graph.nodes:
        inputs = [tensors[i] for i in node.inputs]
        output = tensors[node.output]
        value = _evaluate(node, inputs, output) if all(t.is_constant for t in inputs) and node.inputs else None
        if value is None or node.output in graph.outputs:
            kept.append(node)
        else:
            tensors[node.output] = replace(output, data=value)
    return graph.with_nodes(kept, tensors.values())


def _evaluate(node: Node, inputs: list[Tensor], output: Tensor) -> Array | None:
    if output.size > max(MAX_GROWTH_ELEMENTS, *(t.size for t in inputs)):
        return None
    arrays = [t.data for t in inputs if t.data is not None]
    match node.attributes:
        case Rearrange() as rearrange:
            base = evaluate(rearrange, arrays[0], output.shape)
        case Concatenate(axis):
            base = np.concatenate(arrays, axis)
        case None if node.kind == "reshape":
            base = arrays[0].reshape(output.shape)
        case None if node.kind == "map":
            base = np.broadcast_to(arrays[0], output.shape)
        case _:
            return None
    return np.ascontiguousarray(run_steps(node, base, arrays).astype(output.dtype))


def run_steps(node: Node, base: Array, inputs: list[Array]) -> Array:
    """The numpy meaning of a node's steps, in double precision, from the kernel's own result ``base``."""
    if not node.steps:
        return base
    values: list[Array] = [base.astype(np.float64)]

    def read(operand: Operand) -> Array:
        return values[operand.index] if isinstance(operand, Value) else inputs[operand.index].astype(np.float64)

    for step in node.steps:
        with np.errstate(all="ignore"):  # what a device does without a word, infinities and NaN included
            values.append(FUNCTIONS[step.function].evaluate(*map(read, step.operands), *step.parameters))
    return values[-1]
