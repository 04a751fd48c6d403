"""In half precision: sums that may exceed the range of half stay in float, and so does what is as large as they are."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from math import inf, pi, prod

import numpy as np

from tflgpu.graph.ir import EpilogueOp, Graph, Input, Node, TensorId
from tflgpu.ops.arithmetic.reduction import Reduce
from tflgpu.ops.arithmetic.scan import CumulativeSum
from tflgpu.ops.epilogue_ops import apply
from tflgpu.ops.image.pooling import Pool
from tflgpu.target import HALF_MAX

# The least and the greatest element of a tensor.
Range = tuple[float, float]

# That of a tensor of which nothing is known: what half can hold.
UNKNOWN: Range = (-HALF_MAX, HALF_MAX)

# Part of the limit: a mean as a sum times a rounded 1 / n is no larger than its terms.
TOLERANCE = 1e-3

# Kinds of nodes whose results lie between the least and the greatest element of their inputs, or are 0.
KEEP_RANGE = frozenset(("concatenate", "gather", "map", "rearrange", "reshape", "resize_bilinear", "strided", "unpool"))

# Reductions whose results may be larger than the elements.
GROW = frozenset(("prod", "sum", "sum_of_squares"))

# Functions that are infinite at single points, which no range is judged by.
WITH_POLES = frozenset(("div", "floor_div", "log", "pow", "rsqrt"))

# Where functions turn that do not only rise or only fall, such as `square`, `gelu` and `sin`.
TURNS = (-pi, -pi / 2, -1.0, 0.0, 1.0, pi / 2, pi)

FLOAT_MAX = float(np.finfo(np.float32).max)


def keep_large_sums(graph: Graph) -> Graph:
    """Mark sums as precise whose number of terms times the largest term exceeds half, and what is computed from them.

    Terms of which nothing is known count as large as half can hold. What an activation, a division or any other
    function brings back into this range is not marked. Products with weights are not followed: they are assumed to be
    in range, as all others are.
    """
    if not any(map(_adds_up, graph.nodes)):
        return graph
    ranges: dict[TensorId, Range] = {}
    for node in graph.nodes:
        ranges[node.output] = _range(graph, node, ranges)
    large = [t for t, ends in ranges.items() if not _fits(ends)]
    return graph.with_nodes(graph.nodes, [graph[t].changed(precise=True) for t in large])


def _adds_up(node: Node) -> bool:
    """Whether a node may give numbers that exceed half although its inputs do not."""
    attributes = node.attributes
    return isinstance(attributes, CumulativeSum) or (isinstance(attributes, Reduce) and attributes.function in GROW)


def _fits(ends: Range) -> bool:
    return max(-ends[0], ends[1]) <= HALF_MAX * (1 + TOLERANCE)


def _range(graph: Graph, node: Node, ranges: Mapping[TensorId, Range]) -> Range:
    """That of the node's result."""
    values = [_computed(graph, node, ranges)]
    for op in node.epilogue:
        operands = [
            _of_tensor(graph, node.inputs[o.index], ranges) if isinstance(o, Input) else values[o.index]
            for o in op.operands
        ]
        values.append(_applied(op, operands))
    return values[-1]


def _of_tensor(graph: Graph, tensor: TensorId, ranges: Mapping[TensorId, Range]) -> Range:
    """Constants are in the range of half, too: a mask of -1e9 is no sum."""
    data = graph.constant(tensor)
    if data is None or not data.size:
        return ranges.get(tensor, UNKNOWN)
    return _within(UNKNOWN, (float(data.min()), float(data.max())))


def _computed(graph: Graph, node: Node, ranges: Mapping[TensorId, Range]) -> Range:
    """That of what the node's kernel computes before its epilogue."""
    first = node.inputs[0]
    if isinstance(node.attributes, Reduce):
        ends = _of_tensor(graph, first, ranges)
        return _reduced(node.attributes.function, prod(graph[first].shape[a] for a in node.attributes.axes), ends)
    if isinstance(node.attributes, CumulativeSum):
        low, high = _of_tensor(graph, first, ranges)
        count = graph[first].shape[node.attributes.axis]
        return min(0.0, count * low), max(0.0, count * high)
    if isinstance(node.attributes, Pool):
        return _of_tensor(graph, first, ranges)
    if node.kind not in KEEP_RANGE:
        return UNKNOWN
    if node.kind in ("map", "reshape"):
        return _of_tensor(graph, first, ranges)
    moved = [t for i, t in enumerate(node.inputs) if i not in node.epilogue_inputs]
    lows, highs = zip(*(_of_tensor(graph, t, ranges) for t in moved), strict=True)
    return min(0.0, *lows), max(0.0, *highs)


def _reduced(function: str, count: int, ends: Range) -> Range:
    low, high = ends
    largest = max(-low, high)
    match function:
        case "sum":
            return _within((-FLOAT_MAX, FLOAT_MAX), (count * low, count * high))
        case "sum_of_squares":
            return 0.0, min(count * largest**2, FLOAT_MAX)
        case "prod" if largest > 1:
            bound = FLOAT_MAX if count * np.log(largest) > np.log(FLOAT_MAX) else largest**count
            return -bound if low < 0 else 0.0, bound
        case "prod":
            return -1.0, 1.0
        case _:
            return ends


def _applied(op: EpilogueOp, operands: list[Range]) -> Range:
    """The range of a function, by its results at the ends of its operands' ranges and where functions turn."""
    points = [sorted({low, high, *(p for p in TURNS if low < p < high)}) for low, high in operands]
    grid = np.array(list(product(*points)))
    results = apply(op.function, list(grid.T), op.parameters).astype(np.float64)
    left_out = ~np.isfinite(results) if op.function in WITH_POLES else np.isnan(results)
    results = results[~left_out]
    if not results.size:
        return UNKNOWN
    limits = UNKNOWN if all(map(_fits, operands)) else (-FLOAT_MAX, FLOAT_MAX)  # large numbers come of sums only
    return _within(limits, (float(results.min()), float(results.max())))


def _within(limits: Range, ends: Range) -> Range:
    low, high = np.clip(np.nan_to_num(ends, nan=0.0, posinf=inf, neginf=-inf), *limits)
    return float(low), float(high)
