"""Make one node of the operators that spell a softmax: of differences from the greatest element, their exponentials and
quotients.

Converters write a softmax along any axis but the last like this. A softmax of the last axis is one kernel; what moves
the axis there and back often meets other movements and vanishes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from tflgpu.graph.ir import Input, Node, TensorId, joint_sources
from tflgpu.graph.layout import without_units
from tflgpu.graph.rewrite_rules import Built, Draft, Match, Rule, Rules, op
from tflgpu.ops.arithmetic.reduction import Reduce, Softmax
from tflgpu.ops.movement.shaping import AxisMap, Rearrange


def _find(match: Match) -> Built:
    """Replace the quotients at the end of a softmax by a node that computes all of it."""
    found = _softmax(match.graph, match.node)
    return None if found is None else list(_along(match.graph, *found, match.node))


find_softmaxes = Rules((Rule("find_softmaxes", op("map"), _find),))


def _softmax(graph: Draft, last: Node) -> tuple[list[Node], TensorId, int] | None:
    """Return the nodes before ``last`` of the softmax that it ends, what it is of, and the axis; None if it ends
    none."""
    quotient = _operands(last, "div")
    exponential = graph.producer.get(quotient[0]) if quotient else None
    if quotient is None or exponential is None or graph[quotient[0]].shape != graph[last.output].shape:
        return None
    sums, total = _reduced(graph, quotient[1], "sum")
    exponent = _operands(exponential, "exp")
    difference = graph.producer.get(exponent[0]) if exponent else None
    terms = _operands(difference, "sub") if difference is not None else None
    if total is None or difference is None or terms is None:
        return None
    greatest, most = _reduced(graph, terms[1], "max")
    if most is None or total.inputs[0] != exponential.output or most.inputs[0] != terms[0]:
        return None
    x = graph[terms[0]]
    axes = [_axes(graph, n) for n in (most, total)]
    if axes[0] != axes[1] or len(axes[0]) != 1 or x.shape != graph[last.output].shape or x.dtype != "float32":
        return None
    kept = tuple(1 if i == axes[0][0] else size for i, size in enumerate(x.shape))
    if any(without_units(graph[t].shape) != without_units(kept) for t in (quotient[1], terms[1])):
        return None
    return [*greatest, difference, exponential, *sums], x.id, axes[0][0]


def _operands(node: Node, function: str) -> list[TensorId] | None:
    """Return what a node computes nothing but ``function`` of; None if it computes anything else."""
    if node.kind != "map" or [op.function for op in node.epilogue] != [function]:
        return None
    return [node.inputs[o.index if isinstance(o, Input) else 0] for o in node.epilogue[0].operands]


def _reduced(graph: Draft, tensor: TensorId, function: str) -> tuple[list[Node], Node | None]:
    """Return the reduction that a tensor is, perhaps in another shape or limited below; and all nodes up to it."""
    nodes = list[Node]()
    while (node := graph.producer.get(tensor)) is not None:
        nodes.append(node)
        if isinstance(node.attributes, Reduce):
            return nodes, node if node.attributes.function == function and not node.epilogue else None
        if (node.kind != "reshape" or node.epilogue) and not (function == "max" and _limits_nothing(graph, node)):
            break
        tensor = node.inputs[0]
    return nodes, None


def _limits_nothing(graph: Draft, node: Node) -> bool:
    """Whether a node takes the greater of its first input and the least number there is."""
    operands = _operands(node, "maximum")
    limit = graph.constant(operands[1]) if operands and operands[0] == node.inputs[0] else None
    same = graph[node.output].shape == graph[node.inputs[0]].shape
    return same and limit is not None and bool(np.all(limit <= np.finfo(np.float32).min))


def _axes(graph: Draft, node: Node) -> list[int]:
    """Return the axes of more than one element that a reduction is along."""
    assert isinstance(node.attributes, Reduce)
    return [axis for axis in node.attributes.axes if graph[node.inputs[0]].shape[axis] > 1]


def _along(graph: Draft, parts: Sequence[Node], x: TensorId, axis: int, last: Node) -> Iterator[Node]:
    """Yield the softmax of ``x`` along ``axis``."""
    sources, shape = joint_sources(*parts[::-1], last), graph[x].shape
    softmax = Node("softmax", (x,), last.output, Softmax(1.0), sources=sources)
    if axis == len(shape) - 1:
        yield softmax
        return
    order = [*(i for i in range(len(shape)) if i != axis), axis]
    moved = tuple(shape[i] for i in order)
    operand, result = (graph.new.like(graph[t], moved) for t in (x, last.output))
    yield Node("rearrange", (x,), operand.id, Rearrange(tuple(AxisMap(order.index(i)) for i in range(len(shape)))))
    yield replace(softmax, inputs=(operand.id,), output=result.id)
    yield Node("rearrange", (result.id,), last.output, Rearrange(tuple(map(AxisMap, order))), sources=sources)
