"""Means, sums and windows that a model spells as layers: their weights are constants of one sign.

Layers that were trained have weights of both signs. Beside their results the rounding of what they read is noise, but a
difference of two means, or of two images that a window has smoothed, may be much smaller than both.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tflgpu.graph.ir import Graph, Node, stored_elements
from tflgpu.ops.arithmetic.matmul import MatMul
from tflgpu.ops.image.convolution import output_channel_axis

# Kinds that multiply two matrices; where one of them is a constant, they are layers.
PRODUCTS = frozenset(("convolution", "depthwise", "fully_connected", "matmul"))

# Terms of a sum. With fewer weights a layer moves elements, as an identity does, or has the same sign by chance.
TERMS = 4

# Weights that are looked at first: those of nearly all layers have both signs among them.
FIRST = 64


@dataclass(frozen=True)
class WeightedSum:
    """A sum. operand: the number of the node's input that it adds up. low, high: the least and the greatest sum of the
    weights of a result; one of them is 0."""

    operand: int
    low: float
    high: float


def weighted_sum(graph: Graph, node: Node) -> WeightedSum | None:
    """Return the sum that a product with constant weights is; None for other nodes.

    Args:
        graph: The node's graph.
        node: Any node.
    """
    constants = [i for i, t in enumerate(node.inputs[:2]) if graph[t].is_constant]
    if node.kind not in PRODUCTS or len(constants) != 1:
        return None
    (number,) = constants
    weights = stored_elements(graph[node.inputs[number]])
    if not isinstance(weights, np.ndarray) or weights.dtype != np.float32 or not weights.ndim:
        return None
    first = weights.reshape(-1)[:FIRST]
    if (first.min(initial=0.0) < 0) == (first.max(initial=0.0) > 0):
        return None
    low, high = float(weights.min(initial=0.0)), float(weights.max(initial=0.0))
    axes = _summed_axes(node, number, weights.ndim)
    if (low < 0 < high) or np.count_nonzero(weights, axis=axes).max(initial=0) < TERMS:
        return None
    sums = weights.sum(axes, np.float64)
    return WeightedSum(1 - number, float(sums.min(initial=0.0)), float(sums.max(initial=0.0)))


def _summed_axes(node: Node, number: int, rank: int) -> tuple[int, ...]:
    """Return the axes of the weights along which products are added up. number: which input these are."""
    if isinstance(node.attributes, MatMul):
        is_adjoint = node.attributes.adjoint_right if number else node.attributes.adjoint_left
        return (rank - 2 if is_adjoint != bool(number) else rank - 1,)
    kept = output_channel_axis(node)
    return tuple(axis for axis in range(rank) if axis != kept)
