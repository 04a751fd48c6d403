"""Compute at compile time what depends on constants alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tflgpu.ir import Array, Graph, Node, Operand, Tensor, Value
from tflgpu.ops.gather import Gather
from tflgpu.ops.gather import evaluate as gathered
from tflgpu.ops.shaping import Concatenate, Rearrange, evaluate
from tflgpu.ops.steps import FUNCTIONS

# A constant is worth storing instead of computing only while it stays small beside its sources.
MAX_GROWTH_ELEMENTS = 1 << 20


def fold_constants(graph: Graph) -> Graph:
    """Replace elementwise and data-moving nodes of constants by their values."""
    tensors = dict(graph.tensors)
    fresh = graph.fresh_ids()
    kept: list[Node] = []
    for node in graph.nodes:
        output = tensors[node.output]
        value = value_of(node, [tensors[i] for i in node.inputs], output)
        if value is None:
            kept.append(node)
        elif node.output in graph.outputs:  # somebody has to write it
            constant = replace(output, id=next(fresh), data=value)
            tensors[constant.id] = constant
            kept.append(Node("map", (constant.id,), node.output, sources=node.sources))
        else:
            tensors[node.output] = replace(output, data=value)
    return graph.with_nodes(kept, tensors.values())


def value_of(node: Node, inputs: Sequence[Tensor], output: Tensor) -> Array | None:
    """The value of a node whose inputs are all constants; None if one is not, or it is not to be computed here."""
    arrays = [t.data for t in inputs if t.data is not None]
    if not arrays or len(arrays) < len(inputs):
        return None
    if output.size > max(MAX_GROWTH_ELEMENTS, *(t.size for t in inputs)):
        return None
    match node.attributes:
        case Rearrange() as rearrange:
            base = evaluate(rearrange, arrays[0], output.shape)
        case Gather() as gather:
            base = gathered(gather, arrays, output.shape)
        case Concatenate(axis):
            base = np.concatenate(arrays, axis)
        case None if node.kind == "reshape":
            base = arrays[0].reshape(output.shape)
        case None if node.kind == "map":
            base = np.broadcast_to(arrays[0], output.shape)
        case _:
            return None
    return np.array(run_steps(node, base, arrays), output.dtype, order="C")


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
