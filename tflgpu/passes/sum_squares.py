"""Sums and means of squares in one node, so that no square is stored: half holds none of a number above 255."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from tflgpu.graph.ir import EpilogueOp, Input, Node, TensorId, Value, joint_sources
from tflgpu.graph.rewrite_rules import Built, Draft, Match, Rule, Rules, op
from tflgpu.ops.arithmetic.reduction import Reduce


def _square(match: Match) -> Built:
    """Let a sum or mean of squares of floats, which nothing else reads, square what it reads."""
    graph, squares = match.graph, match["squares"]
    root = _root(graph, squares)
    if root is None:
        return None
    if not root.epilogue:
        return [_of_squares(match, root.inputs[0])]
    root = replace(root, output=graph.new.like(graph[squares.output], graph[squares.output].shape).id)
    return [root, _of_squares(match, root.output)]


def _adds(_: Draft, node: Node) -> bool:
    return isinstance(node.attributes, Reduce) and node.attributes.function in ("sum", "mean")


sum_squares = Rules((Rule("sum_squares", op("reduce", op("map", name="squares", alone=True), where=_adds), _square),))


def _root(graph: Draft, node: Node) -> Node | None:
    """Return the map node that computes what ``node`` gives the squares of; without an epilogue it only reads that."""
    *before, last = node.epilogue or (None,)
    result = graph[node.output]
    if last is None or result.dtype != "float32" or result.precise:
        return None
    if last.function == "squared_difference":
        return replace(node, epilogue=(*before, EpilogueOp("sub", last.operands)))
    if not _squares(graph, node, last):
        return None
    root = last.operands[0]
    if before:
        return replace(node, epilogue=tuple(before)) if root == Value(len(before)) else None
    if not isinstance(root, Value) or graph[node.inputs[0]].shape != result.shape:
        return None
    return replace(node, epilogue=())


def _squares(graph: Draft, node: Node, last: EpilogueOp) -> bool:
    """Whether an epilogue op gives the square of its first operand."""
    first, *others = last.operands
    if last.function == "pow" and isinstance(others[0], Input):
        exponent = graph.constant(node.inputs[others[0].index])
        return exponent is not None and bool(np.all(exponent == 2))
    return last.function == "square" or (last.function == "mul" and others == [first])


def _of_squares(match: Match, source: TensorId) -> Node:
    """Return the reduction of the squares of ``source``."""
    graph, node = match.graph, match.node
    attributes = node.attributes
    assert isinstance(attributes, Reduce)
    epilogue, inputs = node.epilogue, (source, *node.inputs[1:])
    if attributes.function == "mean":
        count = prod(graph[node.inputs[0]].shape[axis] for axis in attributes.axes)
        inputs = (*inputs, graph.new.constant(np.array(1 / count, np.float32)))
        divided = EpilogueOp("mul", (Value(0), Input(len(inputs) - 1)))
        after = (op.moved(lambda o: Value(o.index + 1) if isinstance(o, Value) else o) for op in epilogue)
        epilogue = (divided, *after)
    return Node(
        "reduce",
        inputs,
        node.output,
        replace(attributes, function="sum_of_squares"),
        epilogue,
        joint_sources(match["squares"], node),
    )
