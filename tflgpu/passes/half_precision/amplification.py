"""Effect on the outputs of storing a tensor in half, as a multiple of the effect on the tensor itself.

A rule for a kind of nodes (:class:`KindRule`) is data. A kind without one passes nothing back: it is taken to bring
numbers about as near as those that it reads.

From the outputs back to the inputs, each node says how much an error of what it reads is multiplied on its way to a
result that must not change. What an operand of elementwise functions does is measured: on samples of the ranges of all
operands, with those of one rounded. So ``log(1 + exp(x))`` is as harmless as it is, although ``exp`` alone is not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod, sqrt
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tflgpu.graph.ir import EpilogueOp, Graph, Input, Node, Operand, TensorId, Value
from tflgpu.ops.arithmetic.matmul import MatMul, matrix_of
from tflgpu.ops.arithmetic.reduction import Reduce, Softmax
from tflgpu.ops.epilogue_ops import FUNCTIONS, apply, computed
from tflgpu.ops.image.convolution import output_channel_axis
from tflgpu.ops.image.window import Pool
from tflgpu.passes.half_precision.cancellation import origin
from tflgpu.passes.half_precision.ranges import Range, Ranges, operand_types, value_types, weighted_sum

# Whole: an element of the result is one of the input, or a mean of few. Averaged: it is made of many with errors of
# their own, which leave the root of their number.
Passing = Literal["whole", "averaged"]


@dataclass(frozen=True)
class KindRule:
    """Effect of a kind of node on rounding.

    passes: how precise its inputs have to be where its result has to be precise; None: as any other tensor.
    inputs: of these inputs by number, what errors of theirs are multiplied by, beside an error of the result.
    """

    passes: Passing | None = None
    inputs: Mapping[int, float] | None = None


# Pixels from which a sample is taken at most, in coordinates of usual size.
COORDINATES = 64.0

KINDS: Mapping[str, KindRule] = {
    **dict.fromkeys(("map", "reshape", "rearrange", "strided", "gather", "concatenate", "unpool"), KindRule("whole")),
    **dict.fromkeys(("resize_bilinear", "cumulative_sum", "scatter", "join"), KindRule("whole")),
    **dict.fromkeys(("convolution", "depthwise", "fully_connected", "matmul", "reduce", "pool"), KindRule("averaged")),
    "resampler": KindRule("whole", {1: COORDINATES}),
}

Array = NDArray[np.generic]
Floats = NDArray[np.float64]

UNIT = 2.0**-11  # the largest error of half, as a part of a number
LEAST = 2.0**-25  # smaller numbers are stored as zero
SMALL = 1e-3  # an error by that which is too large, as a part of the largest result

# Rounding is an error of 5e-4 at most, this many times of which outputs may be off.
MOST = 4.0

# Amplification where the next neighbour of a number leads to another index, branch or whole number.
JUMP = 4096.0

# From this amplification on weights are stored in float, too. It is also that of the difference between a number and
# the least or greatest one of its row.
EXACT = JUMP / 4

# Terms of a sum from which on their errors are taken to leave nothing of an amplification; of a smaller one.
MANY, FEW = 32, 4

# The magnitudes of samples: of numbers close to zero, of usual ones, and of what activations reach.
MAGNITUDES = (0.0, 1e-8, 1e-6, 1e-4, 1e-2, 0.1, 0.3, 0.7, 1.0, 1.6, 2.3, 3.1, 4.3, 6.2, 8.7, 11.3, 14.2, 15.9)
SAMPLES = 128

# Functions whose results next to zero are numbers, too, where they leave the model: a probability of 1e-9.
TAILS = frozenset(("exp", "logistic"))


class Amplifications:
    """By how much rounding is multiplied on its way to the outputs, for each tensor of floats that nodes compute."""

    def __init__(self, graph: Graph, ranges: Ranges, leaving: frozenset[TensorId]) -> None:
        """Go through all nodes, from the last one.

        Args:
            graph: In execution order.
            ranges: Of its tensors, of usual size.
            leaving: The tensors of which outputs have elements.
        """
        self._graph, self._ranges, self._leaving = graph, ranges, leaving
        self.found: dict[TensorId, float] = {}
        self.near_zero: set[TensorId] = set()  # tensors whose small numbers must not become zero
        self.deciding: set[TensorId] = set()  # tensors that lead to an index, a branch or a whole number
        for node in reversed(graph.nodes):
            for tensor, factor in self._of_inputs(node):
                if factor > self.found.get(tensor, 1.0):
                    self.found[tensor] = min(factor, JUMP)
                    if factor >= EXACT and self._decides(node):
                        self.deciding.add(tensor)

    def _decides(self, node: Node) -> bool:
        return node.output in self.deciding or bool(_exact_values(self._graph, node))

    def _of_inputs(self, node: Node) -> Iterator[tuple[TensorId, float]]:
        graph = self._graph
        is_float = graph[node.output].dtype == "float32"
        wanted: list[tuple[int | Input, float]] = (
            [(len(node.epilogue), self.found.get(node.output, 1.0))] if is_float else []
        )
        wanted += _exact_values(graph, node)
        steep = {FUNCTIONS[op.function].rounding for op in node.epilogue} != {"smooth"} and bool(node.epilogue)
        rule = KINDS.get(node.kind)
        for index, factor in (rule.inputs or {}).items() if rule else ():
            yield node.inputs[index], factor
        if isinstance(node.attributes, Softmax) and node.output in self._leaving:
            yield node.inputs[0], _largest(self._ranges.of(node.inputs[0]))
        wanted += ((operand, EXACT) for operand in _beside_extremes(graph, node))
        steep = steep or self._cancels(node)
        if not steep and all(factor <= 1 for _, factor in wanted):
            return
        measured = _Chain(graph, node, self._ranges, is_leaving=node.output in self._leaving)
        for place, factor in wanted:
            for operand in measured.leaves(place):
                amplified = factor * measured.effect(place, operand)
                if isinstance(operand, Input):
                    read = node.inputs[operand.index]
                    yield read, amplified
                    if measured.needs_small(place, operand):
                        self.near_zero.add(read)
                else:
                    yield from self._through_kernel(node, amplified)
                    if node.kind == "map" and measured.needs_small(place, operand):
                        self.near_zero.add(node.inputs[0])

    def _cancels(self, node: Node) -> bool:
        """Whether a sum or difference is in a much smaller range than what it is made of."""
        if not any(op.function in ("add", "sub") for op in node.epilogue):
            return False
        values = self._ranges.values(node)
        for op, result in zip(node.epilogue, values[1:], strict=True):
            if op.function in ("add", "sub"):
                operands = (values[o.index] if isinstance(o, Value) else self._read(node, o) for o in op.operands)
                if max(map(_largest, operands)) > MOST * _largest(result):
                    return True
        return False

    def _read(self, node: Node, operand: Input) -> Range:
        return self._ranges.of(node.inputs[operand.index])

    def _through_kernel(self, node: Node, amplified: float) -> Iterator[tuple[TensorId, float]]:
        rule, factor = KINDS.get(node.kind), amplified
        if rule is None or rule.passes is None:
            return
        if rule.passes == "averaged":
            terms = _terms(self._graph, node)
            factor = amplified / sqrt(terms) if terms < (MANY if amplified >= EXACT else FEW) else 1.0
            if amplified >= EXACT:
                yield from ((t, amplified) for t in node.inputs[1:2] if self._graph[t].is_constant)
        read = node.epilogue_inputs
        yield from ((t, factor) for i, t in enumerate(node.inputs) if i not in read or (i == 0 and node.kind == "map"))


def _exact_values(graph: Graph, node: Node) -> list[tuple[int | Input, float]]:
    """Return the operands of which any rounding changes an index, a branch or a whole number."""
    found: list[tuple[int | Input, float]] = []
    types = value_types(graph, node) if node.epilogue else []
    for op in node.epilogue:
        rounding = FUNCTIONS[op.function].rounding
        if rounding not in ("jumps", "compares"):
            continue
        if rounding == "compares" and (
            len(set(op.operands)) == 1 or any(_is_zero(graph, node, o) for o in op.operands)
        ):
            continue
        for operand, kind in zip(op.operands, operand_types(graph, node, op, types), strict=True):
            if kind == "float":
                found.append((operand if isinstance(operand, Input) else operand.index, JUMP))
    return found


def _is_zero(graph: Graph, node: Node, operand: Operand) -> bool:
    data = graph.constant(node.inputs[operand.index]) if isinstance(operand, Input) else None
    return data is not None and not np.any(data)


def _largest(ends: Range) -> float:
    return max(map(abs, ends))


def _beside_extremes(graph: Graph, node: Node) -> Iterator[int | Input]:
    """Yield the operands of differences between numbers and the least or greatest one of some."""
    for op in node.epilogue:
        if op.function == "sub" and any(_is_extreme(graph, node, o) for o in op.operands):
            yield from (o if isinstance(o, Input) else o.index for o in op.operands)


def _is_extreme(graph: Graph, node: Node, operand: Operand) -> bool:
    made, op = origin(graph, node, operand)
    if made is None or op is not None or not isinstance(made.attributes, Reduce):
        return False
    return made.attributes.function in ("max", "min")


def averages_products(graph: Graph, node: Node) -> bool:
    """Whether a node's results are made of so many products that the errors of these average out."""
    rule = KINDS.get(node.kind)
    is_sum = rule is not None and rule.passes == "averaged" and not isinstance(node.attributes, Reduce | Pool)
    return is_sum and _terms(graph, node) >= MANY and weighted_sum(graph, node) is None


def _terms(graph: Graph, node: Node) -> int:
    """How many numbers an element of a sum is made of; 1 of a maximum."""
    first, attributes = graph[node.inputs[0]].shape, node.attributes
    match attributes:
        case Reduce(function, axes):
            return prod(first[a] for a in axes) if function not in ("max", "min") else 1
        case Pool(function, window):
            return prod(window.kernel) if function != "maximum" else 1
        case MatMul():
            return matrix_of(first, attributes.adjoint_left)[1]
    axis, weights = output_channel_axis(node), graph[node.inputs[1]].shape
    return prod(weights) // weights[axis] if axis is not None else 1


class _Chain:
    """The elementwise functions of a node, on samples."""

    def __init__(self, graph: Graph, node: Node, ranges: Ranges, *, is_leaving: bool) -> None:
        self._graph, self._node, self._ranges = graph, node, ranges
        self._is_relative = is_leaving and not TAILS.isdisjoint(op.function for op in node.epilogue[-1:])
        self._types = value_types(graph, node)
        self._computed = ranges.values(node)[0]
        self._inputs: dict[Operand, Array] = {}
        self._values = self._evaluated({})

    def leaves(self, place: int | Input) -> list[Operand]:
        """Return what a value is computed from: the kernel's result, and inputs that may be stored in half."""
        ahead: list[Operand] = [Value(place) if isinstance(place, int) else place]
        found: dict[Operand, None] = {}
        while ahead:
            operand = ahead.pop()
            if isinstance(operand, Value) and operand.index:
                ahead += self._node.epilogue[operand.index - 1].operands
            elif self._is_float(operand):
                found[operand] = None
        return list(found)

    def effect(self, place: int | Input, leaf: Operand) -> float:
        """By how much the error of a leaf is multiplied in a value, beside the largest one."""
        if place == leaf or place == 0:
            return 1.0
        largest = self._error(place, leaf, np.asarray(self._sample(leaf), np.float64) * (1 + UNIT))
        return min(largest / UNIT, JUMP)

    def needs_small(self, place: int | Input, leaf: Operand) -> bool:
        """Whether a value becomes another one where numbers of a leaf that half cannot hold become zero."""
        if place == leaf or place == 0:
            return False
        numbers = self._sample(leaf)
        return self._error(place, leaf, np.where(np.abs(numbers) < LEAST, 0.0, numbers)) > SMALL

    def _error(self, place: int | Input, leaf: Operand, numbers: Array) -> float:
        """Return the largest error of a value, with other numbers for a leaf, beside the largest one."""
        assert isinstance(place, int)
        before = np.asarray(self._values[place], np.float64)
        after = np.asarray(self._evaluated({leaf: numbers})[place], np.float64)
        finite = np.isfinite(before)
        if not finite.any():
            return 0.0
        with np.errstate(all="ignore"):
            size = np.abs(before) if self._is_relative else np.abs(before[finite]).max()
            error = np.where(before == after, 0.0, np.abs(after - before) / size)[finite]
        return float(np.nan_to_num(error, nan=1.0).max())

    def _is_float(self, operand: Operand) -> bool:
        if isinstance(operand, Value):
            return self._types[0] == "float"
        tensor = self._graph[self._node.inputs[operand.index]]
        is_vector = tensor.size == max(tensor.shape, default=1)  # which is stored in float where it is a constant
        return tensor.dtype == "float32" and not (tensor.is_constant and is_vector)

    def _evaluated(self, changed: Mapping[Operand, Array]) -> list[Array]:
        """All values. changed: leaves with other numbers; what they would make jump stays."""
        values = [changed.get(Value(0), self._sample(Value(0)))]
        for number, op in enumerate(self._node.epilogue):
            if changed and FUNCTIONS[op.function].rounding in ("jumps", "compares"):
                values.append(self._values[number + 1])
                continue
            values.append(apply(op.function, self._operands(op, values, changed), op.parameters))
        return values

    def _operands(self, op: EpilogueOp, values: Sequence[Array], changed: Mapping[Operand, Array]) -> list[Array]:
        return [
            values[o.index] if isinstance(o, Value) else changed[o] if o in changed else self._sample(o)
            for o in op.operands
        ]

    def _sample(self, operand: Operand) -> Array:
        if operand not in self._inputs:
            self._inputs[operand] = self._drawn(operand)
        return self._inputs[operand]

    def _drawn(self, operand: Operand) -> Array:
        if isinstance(operand, Value):
            return samples(self._computed, 0) if self._types[0] == "float" else _integers(self._types[0])
        tensor = self._graph[self._node.inputs[operand.index]]
        if tensor.data is not None:
            flat = tensor.data.reshape(-1)
            places = np.random.default_rng(operand.index).integers(0, flat.size, SAMPLES)
            drawn: Array = computed(flat[places])
            return drawn
        if tensor.dtype != "float32":
            return _integers(tensor.dtype)
        return samples(self._ranges.of(tensor.id), operand.index + 1)


def _integers(dtype: str) -> Array:
    wide = {"long": "int64", "uint": "uint32", "int64": "int64", "uint32": "uint32"}
    found: Array = (np.arange(SAMPLES) % 3 == 0).astype(wide.get(dtype, "int32"))
    return found


@lru_cache(maxsize=1024)
def samples(ends: Range, seed: int) -> Floats:
    """Return numbers of a range, more of the usual magnitudes than of others.

    Args:
        ends: The least and the greatest number.
        seed: Decides the order.
    """
    low, high = ends
    signed = np.array([*MAGNITUDES, *(-m for m in MAGNITUDES[1:])])
    inside = signed[(signed >= low) & (signed <= high)]
    points = np.concatenate([inside, np.linspace(low, high, 9), low + (high - low) * np.array([1e-4, 1e-2, 0.99])])
    generator = np.random.default_rng(seed)
    return generator.permutation(np.resize(points, max(SAMPLES, len(points))))[:SAMPLES]
