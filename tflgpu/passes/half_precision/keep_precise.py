"""In half precision: tensors whose rounding would show stay in float, and so do weights that the caller gives."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import takewhile

import numpy as np

from tflgpu.graph.ir import Graph, Input, KeptFor, Node, TensorId, stored_elements
from tflgpu.ops.arithmetic.reduction import Reduce
from tflgpu.ops.image.convolution import output_channel_axis
from tflgpu.ops.image.window import Pool
from tflgpu.ops.movement.shaping import Rearrange
from tflgpu.passes.half_precision.amplification import MOST, Amplifications, averages_products
from tflgpu.passes.half_precision.cancellation import Cancellations, origin
from tflgpu.passes.half_precision.ranges import (
    FLOAT_MAX,
    KEEP_RANGE,
    LARGEST,
    PRODUCTS,
    USUAL,
    Ranges,
    fits,
    weighted_sum,
)
from tflgpu.target import HALF_MAX, HALF_WHOLE

# Part of a tensor that a mean of it is at most, to cost nothing.
LITTLE = 8

# The least number that half holds with all of its digits.
LEAST_NORMAL = 2.0**-14

STATISTICS = frozenset(("mean", "sum", "sum_of_squares"))


def keep_precise(graph: Graph) -> Graph:
    """Mark the tensors that half precision would spoil.

    These are: tensors that may exceed 65504, as sums and powers of numbers in range do; those whose rounding is
    multiplied by more than :data:`MOST` until it reaches an output, an index or a branch; means that elementwise
    functions read, which are small, and whose differences may be smaller still; and integers that were made floats.

    Products with weights are assumed to be in range. Where a sum of many of them has to be precise, it is stored in
    float, but its weights are not, as their errors average out; unless it leads to an index or a branch.
    """
    usual = Ranges(graph, USUAL)
    amplified = Amplifications(graph, usual, leaving_tensors(graph))
    ranges, out_of_reach = Ranges(graph, LARGEST), _out_of_reach(graph)
    reasons: Mapping[KeptFor, Collection[TensorId]] = {  # of a tensor with several, the last one counts
        "whole": _whole_numbers(graph, ranges),
        "mean": _statistics(graph),
        "underflow": amplified.near_zero | out_of_reach["underflow"],
        "cancellation": Cancellations(graph, usual).found | {t for t, f in amplified.found.items() if f > MOST},
        "index": amplified.deciding,
        "overflow": {t for t, ends in ranges.computed().items() if not fits(ends)} | out_of_reach["overflow"],
    }
    kept = {tensor: reason for reason, tensors in reasons.items() for tensor in tensors}
    marked = []
    for tensor in kept.keys() - graph.given:  # those are stored in float
        if graph[tensor].dtype == "float32" and not graph[tensor].precise:
            is_sum = tensor in graph.producer and averages_products(graph, graph.producer[tensor])
            marked.append(graph[tensor].changed(precise=not is_sum, wide=is_sum, kept_for=kept[tensor]))
    return graph.with_nodes(graph.nodes, marked)


def keep_measured(graph: Graph, tensors: Collection[TensorId]) -> Graph:
    """Mark tensors whose rounding runs have shown in the outputs.

    Args:
        graph: Has the tensors.
        tensors: Activations and constants, of which each stays in float.
    """
    marked = [graph[t].changed(precise=True, kept_for="measured") for t in tensors]
    return graph.with_nodes(graph.nodes, marked)


def leaving_tensors(graph: Graph) -> frozenset[TensorId]:
    """Return the tensors of which outputs have elements, or means between neighbours.

    Stored in half, these would be rounded, and beyond 65504 another number.
    """
    found = set(graph.outputs)
    for node in reversed(graph.nodes):
        if node.output in found and not node.epilogue and _takes_elements(node):
            found.update(node.inputs)
    return frozenset(found)


def _takes_elements(node: Node) -> bool:
    if isinstance(node.attributes, Reduce | Pool):
        return node.attributes.function in ("max", "min", "maximum")
    return node.kind in KEEP_RANGE


def _whole_numbers(graph: Graph, ranges: Ranges) -> set[TensorId]:
    """Floats that are integers of more digits than half has: times, counts and positions, whose differences count."""
    found = set[TensorId]()
    for node in graph.nodes:
        if node.epilogue and node.epilogue[-1].function == "to_float":
            low, high = ranges.of(node.output)
            if max(-low, high) > HALF_WHOLE:
                found.add(node.output)
        elif not node.epilogue and _takes_elements(node) and not found.isdisjoint(node.inputs):
            found.add(node.output)
    return found


def _out_of_reach(graph: Graph) -> Mapping[KeptFor, set[TensorId]]:
    """Weights that half cannot hold or of which it leaves few digits that count, and the products with them."""
    found: dict[KeptFor, set[TensorId]] = {"overflow": set(), "underflow": set()}
    for node in graph.of_kind(*PRODUCTS):
        for tensor in node.inputs[1:2]:
            data = stored_elements(graph[tensor])
            if not isinstance(data, np.ndarray) or not data.size:  # quantized weights are within reach
                continue
            largest = max(-float(data.min()), float(data.max()))
            if HALF_MAX < largest <= FLOAT_MAX:
                found["overflow"].update((tensor, node.output))
            elif 0 < largest < LEAST_NORMAL and not _adds_more(graph, node, found["underflow"]):
                found["underflow"].update((tensor, node.output))
    return found


def _adds_more(graph: Graph, node: Node, small: Collection[TensorId]) -> bool:
    """Tell whether a node adds its products to an activation, as a residual connection does: beside that, the digits of
    little weights that half does not hold do not count.

    Args:
        graph: The node's graph.
        node: Multiplies with little weights.
        small: Results of such nodes before it, which may be as small.
    """
    for op in takewhile(lambda op: op.function in ("add", "sub"), node.epilogue):
        for operand in op.operands:
            if isinstance(operand, Input) and not graph[node.inputs[operand.index]].is_constant:
                made, _ = origin(graph, node, operand)
                return made is None or made.output not in small
    return False


def _summed(graph: Graph, node: Node) -> TensorId | None:
    """Return the tensor that a node sums or takes means of; None for other nodes."""
    if isinstance(node.attributes, Reduce):
        return node.inputs[0] if node.attributes.function in STATISTICS else None
    weighted = weighted_sum(graph, node)
    return node.inputs[weighted.operand] if weighted is not None else None


def _statistics(graph: Graph) -> set[TensorId]:
    """Means and sums that only elementwise functions read, and what these make of nothing else."""
    found = set[TensorId]()
    for node in graph.nodes:
        if (read := _summed(graph, node)) is not None:
            is_one = LITTLE * graph[node.output].size <= graph[read].size
        else:
            computed = [t for t in node.inputs if not graph[t].is_constant]
            is_one = node.kind in ("map", "reshape") and bool(computed) and found.issuperset(computed)
        if is_one:
            found.add(node.output)
    for node in reversed(graph.nodes):
        if not all(r.kind == "map" or r.output in found for r in graph.consumers.get(node.output, ())):
            found.discard(node.output)
    return found


def keep_given_weights(graph: Graph) -> Graph:
    """Mark inputs that are nothing but weights, in another order perhaps, as precise, and the sums of such products.

    Nothing trained these weights to keep sums within the range and the digits of half precision.
    """
    weights = {t for tensor in graph.inputs for t in _copies(graph, tensor) if _is_weights(graph, t)}
    precise = weights | {node.output for tensor in weights for node in graph.consumers[tensor]}
    return graph.with_nodes(graph.nodes, [graph[t].changed(precise=True) for t in precise])


def _copies(graph: Graph, tensor: TensorId) -> Iterator[TensorId]:
    """Yield a tensor, and all that has the same elements in another order."""
    yield tensor
    for node in graph.consumers.get(tensor, ()):
        if _reorders(node):
            yield from _copies(graph, node.output)


def _is_weights(graph: Graph, tensor: TensorId) -> bool:
    """Whether all that reads a tensor or its copies takes it as weights."""
    readers = graph.consumers.get(tensor, ())
    return bool(readers) and all(
        _takes_weights(node, tensor) or (_reorders(node) and _is_weights(graph, node.output)) for node in readers
    )


def _reorders(node: Node) -> bool:
    return not node.epilogue and (isinstance(node.attributes, Rearrange) or node.kind == "reshape")


def _takes_weights(node: Node, tensor: TensorId) -> bool:
    """Whether ``tensor`` is the weights of a convolution and nothing else to it."""
    return output_channel_axis(node) is not None and [i for i, t in enumerate(node.inputs) if t == tensor] == [1]
