"""Intervals of tensors: from constants, activations, grids of quantized tensors, and an assumption for the rest.

Layers that were trained have weights of both signs. Beside their results the rounding of what they read is noise, but a
difference of two means, or of two images that a window has smoothed, may be much smaller than both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import inf, pi, prod

import numpy as np

from tflgpu.graph.ir import EpilogueOp, Graph, Input, Node, TensorId, stored_elements
from tflgpu.ops.arithmetic.matmul import MatMul
from tflgpu.ops.arithmetic.reduction import LayerNorm, Reduce, Softmax
from tflgpu.ops.arithmetic.scan import CumulativeSum, TopK
from tflgpu.ops.epilogue_ops import FUNCTIONS, apply
from tflgpu.ops.image.convolution import output_channel_axis
from tflgpu.ops.image.window import Pool
from tflgpu.ops.movement.scatter import Scatter
from tflgpu.target import HALF_MAX, VectorType, vector_of

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


# The least and the greatest element of a tensor.
Range = tuple[float, float]

# Kinds of nodes whose results lie between the least and the greatest element of their inputs, or are 0.
KEEP_RANGE = frozenset(("concatenate", "gather", "map", "rearrange", "reshape", "resize_bilinear", "strided", "unpool"))

# Kinds of nodes that give integers, whatever they read. All others count as of the type of their first input.
INTEGERS = frozenset(("arg_extreme", "buckets", "first_above"))

# Reductions whose results may be larger than the elements.
GROW = frozenset(("prod", "sum", "sum_of_squares"))

# Functions that are infinite at single points, which no range is judged by.
WITH_POLES = frozenset(("div", "floor_div", "log", "pow", "rsqrt"))

# Where functions turn that do not only rise or only fall, such as `square`, `gelu` and `sin`.
TURNS = (-pi, -pi / 2, -1.0, 0.0, 1.0, pi / 2, pi)

# Functions whose results are booleans.
COMPARES = (name for name, each in FUNCTIONS.items() if each.rounding == "compares")
BOOLEANS = frozenset(("logical_and", "logical_not", "logical_or", "to_bool", *COMPARES))

# The least and the greatest number of element types that hold small ones only.
SMALL_TYPES: Mapping[str, Range] = {"bool": (0.0, 1.0), "int8": (-128.0, 127.0), "uint8": (0.0, 255.0)}

# The least number of half but zero.
LEAST = 2.0**-24

FLOAT_MAX = float(np.finfo(np.float32).max)

# Part of the limit: a mean as a sum times a rounded 1 / n is no larger than its terms.
TOLERANCE = 1e-3


def fits(ends: Range) -> bool:
    """Whether half precision holds all numbers of a range.

    Args:
        ends: The least and the greatest number.
    """
    return max(-ends[0], ends[1]) <= HALF_MAX * (1 + TOLERANCE)


@dataclass(frozen=True)
class Assumption:
    """Assumptions on numbers of which nothing is known.

    unknown: their range. keeps: whether products, quotients and differences of numbers in range are in range, too;
    powers, exponentials and sums of many are not.
    """

    unknown: Range
    keeps: bool


# Two assumptions: as large as half can hold; and as large as the activations of most networks.
LARGEST = Assumption((-HALF_MAX, HALF_MAX), keeps=True)
USUAL = Assumption((-16.0, 16.0), keeps=False)


class Ranges:
    """The ranges of a graph's tensors."""

    def __init__(self, graph: Graph, assumption: Assumption) -> None:
        """Go through all nodes.

        Args:
            graph: In execution order.
            assumption: Of inputs, of states and of sums of products.
        """
        self._graph, self._assumed = graph, assumption
        self._found: dict[TensorId, Range] = {}
        for node in graph.nodes:
            self._found[node.output] = self.values(node)[-1]

    def computed(self) -> Mapping[TensorId, Range]:
        """Return the ranges of the nodes' results."""
        return self._found

    def of(self, tensor: TensorId) -> Range:
        """Return the range of a tensor. Constants are in the range of half, too: a mask of -1e9 is no sum.

        Args:
            tensor: Any tensor of the graph.
        """
        data = self._graph.constant(tensor)
        if data is None or not data.size:
            unknown = SMALL_TYPES.get(self._graph[tensor].dtype, self._assumed.unknown)
            return self._found.get(tensor, unknown)
        return _within((-HALF_MAX, HALF_MAX), (float(data.min()), float(data.max())))

    def values(self, node: Node) -> list[Range]:
        """Return the ranges of a node's values: what its kernel computes, and what each epilogue op makes of that."""
        values, types = [self._computed(node)], value_types(self._graph, node)
        for op in node.epilogue:
            operands = tuple(
                self.of(node.inputs[o.index]) if isinstance(o, Input) else values[o.index] for o in op.operands
            )
            if op.function == "select":
                values.append(_hull(operands[1:]))
            elif op.function in BOOLEANS:
                values.append((0.0, 1.0))
            elif op.function == "to_float":
                values.append(operands[0])
            elif all(t == "float" for t in operand_types(self._graph, node, op, types)):
                values.append(_applied(op.function, op.parameters, operands, _is_square(op), self._assumed))
            else:
                values.append(self._assumed.unknown)
        return values

    def _computed(self, node: Node) -> Range:
        """Return the range of what the node's kernel computes before its epilogue."""
        graph, first = self._graph, node.inputs[0]
        match node.attributes:
            case Reduce(function, axes):
                return _reduced(function, prod(graph[first].shape[a] for a in axes), self.of(first))
            case CumulativeSum():
                low, high = self.of(first)
                count = graph[first].shape[node.attributes.axis]
                return min(0.0, count * low), max(0.0, count * high)
            case Scatter(joining="add"):
                low, high = self.of(first)
                count = _most_at_a_place(graph, node)
                return min(0.0, count * low), max(0.0, count * high)
            case Softmax(log=False):
                return 0.0, 1.0
            case LayerNorm():
                most = float(graph[first].shape[-1]) ** 0.5
                return -most, most
            case Pool():
                return self.of(first)
        if (weighted := weighted_sum(graph, node)) is not None:
            return _summed(self.of(node.inputs[weighted.operand]), (weighted.low, weighted.high))
        if node.kind not in KEEP_RANGE:
            return self._assumed.unknown
        if node.kind in ("map", "reshape"):
            return self.of(first)
        moved = [t for i, t in enumerate(node.inputs) if i not in node.epilogue_inputs]
        pads = sum(graph[t].size for t in moved) != graph[node.output].size
        return _hull([*([(0.0, 0.0)] if pads else []), *map(self.of, moved)])


def _most_at_a_place(graph: Graph, node: Node) -> int:
    """How many rows a scatter may add up."""
    places = graph.constant(node.inputs[1])
    if places is None:
        return graph[node.inputs[1]].size
    return int(np.unique(places, return_counts=True)[1].max(initial=1))


def value_types(graph: Graph, node: Node) -> list[VectorType]:
    """Return the types of a node's values, in which they are computed on a device."""
    gives_integers = node.kind in INTEGERS or node.attributes == TopK("indices")
    types: list[VectorType] = ["int" if gives_integers else vector_of(graph[node.inputs[0]].dtype)]
    for op in node.epilogue:
        operands = operand_types(graph, node, op, types)
        match FUNCTIONS[op.function].result:
            case "first":
                types.append(operands[0])
            case "second":
                types.append(operands[1])
            case fixed:
                types.append(fixed)
    return types


def operand_types(graph: Graph, node: Node, op: EpilogueOp, types: Sequence[VectorType]) -> list[VectorType]:
    """Return the types of the operands of an epilogue op.

    Args:
        graph: The node's graph.
        node: The op's node.
        op: One of the node's ops.
        types: Those of the values before the op.
    """
    return [
        vector_of(graph[node.inputs[o.index]].dtype) if isinstance(o, Input) else types[o.index] for o in op.operands
    ]


def _hull(ranges: Sequence[Range]) -> Range:
    lows, highs = zip(*ranges, strict=True)
    return min(lows), max(highs)


def _summed(ends: Range, weights: Range) -> Range:
    """Return the range of sums of numbers in a range. weights: the least and the greatest sum of those."""
    products = [number * weight for number, weight in product(ends, weights)]
    return _within((-FLOAT_MAX, FLOAT_MAX), (min(products), max(products)))


def _is_square(op: EpilogueOp) -> bool:
    return op.function == "mul" and op.operands[0] == op.operands[1]


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


@lru_cache(maxsize=4096)
def _applied(
    function: str, parameters: tuple[float, ...], operands: tuple[Range, ...], is_square: bool, assumed: Assumption
) -> Range:
    """Return the range of a function, by its results at the ends of its operands' ranges and where functions turn."""
    if is_square:
        function, operands = "square", operands[:1]
    if function == "log":  # its result for 0 is -inf; the least number of half takes the place of 0
        operands = tuple((max(low, LEAST), max(high, LEAST)) for low, high in operands)
    points = [sorted({low, high, *(p for p in TURNS if low < p < high)}) for low, high in operands]
    grid = np.array(list(product(*points)))
    results = apply(function, list(grid.T), parameters).astype(np.float64)
    left_out = ~np.isfinite(results) if function in WITH_POLES else np.isnan(results)
    results = results[~left_out]
    if not results.size:
        return assumed.unknown
    limits: Range = (-FLOAT_MAX, FLOAT_MAX)
    if not FUNCTIONS[function].grows and (assumed.keeps or function in WITH_POLES) and _keeps(function, operands):
        limits = (-HALF_MAX, HALF_MAX)
    return _within(limits, (float(results.min()), float(results.max())))


def _keeps(function: str, operands: tuple[Range, ...]) -> bool:
    """Whether a result is assumed in the range of half: large numbers come of sums and powers, and what is divided by
    another of unknown size is brought back."""
    return all(map(fits, operands)) or (function == "div" and not fits(operands[1]))


def _within(limits: Range, ends: Range) -> Range:
    low, high = np.clip(np.nan_to_num(ends, nan=0.0, posinf=inf, neginf=-inf), *limits)
    return float(low), float(high)
