"""Sums and means of squares in one node, so that no square is stored: half holds none of a number above 255."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np

from tflgpu.graph.ir import EpilogueOp, Graph, Input, Node, Operand, TensorId, Value, joint_sources
from tflgpu.graph.new_tensors import NewTensors
from tflgpu.ops.arithmetic.reduction import Reduce


def sum_squares(graph: Graph) -> Graph:
    """Let each sum or mean of squares of floats, which nothing else reads, square what it reads."""
    nodes = {node.output: node for node in graph.nodes}
    new = NewTensors(graph)
    for node in graph.nodes:
        attributes = node.attributes
        if not isinstance(attributes, Reduce) or attributes.function not in ("sum", "mean"):
            continue
        squares = nodes.get(node.inputs[0])
        if squares is None or squares.kind != "map" or graph.sole_consumer(squares.output) is not node:
            continue
        root = _root(graph, squares)
        if root is None:
            continue
        if root.epilogue:
            nodes[squares.output] = root
            source = squares.output
        else:
            del nodes[squares.output]
            source = root.inputs[0]
        nodes[node.output] = _of_squares(node, source, squares, graph, new)
    return graph.with_nodes((nodes[n.output] for n in graph.nodes if n.output in nodes), new)


def _root(graph: Graph, node: Node) -> Node | None:
    """Return the map node that computes what ``node`` gives the squares of; without an epilogue it only reads that."""
    *before, last = node.epilogue or (None,)
    result = graph[node.output]
    if last is None or result.dtype != "float32" or result.precise:
        return None
    operands = tuple(dict.fromkeys(last.operands))
    match last.function:
        case "square":
            root = operands[0]
        case "mul" if len(operands) == 1:
            root = operands[0]
        case "pow" if _is_two(graph, node, operands):
            root = operands[0]
        case "squared_difference":
            return replace(node, epilogue=(*before, EpilogueOp("sub", last.operands)))
        case _:
            return None
    if before:
        return replace(node, epilogue=tuple(before)) if root == Value(len(before)) else None
    if not isinstance(root, Value) or graph[node.inputs[0]].shape != result.shape:
        return None
    return replace(node, epilogue=())


def _is_two(graph: Graph, node: Node, operands: Sequence[Operand]) -> bool:
    exponent = operands[-1]
    data = graph.constant(node.inputs[exponent.index]) if isinstance(exponent, Input) else None
    return data is not None and bool(np.all(data == 2))


def _of_squares(node: Node, source: TensorId, squares: Node, graph: Graph, new: NewTensors) -> Node:
    """Return the reduction of the squares of ``source``."""
    attributes = node.attributes
    assert isinstance(attributes, Reduce)
    epilogue, inputs = node.epilogue, (source, *node.inputs[1:])
    if attributes.function == "mean":
        count = prod(graph[node.inputs[0]].shape[axis] for axis in attributes.axes)
        inputs = (*inputs, new.constant(np.array(1 / count, np.float32)))
        divided = EpilogueOp("mul", (Value(0), Input(len(inputs) - 1)))
        after = (op.moved(lambda o: Value(o.index + 1) if isinstance(o, Value) else o) for op in epilogue)
        epilogue = (divided, *after)
    return Node(
        "reduce",
        inputs,
        node.output,
        replace(attributes, function="sum_of_squares"),
        epilogue,
        joint_sources(squares, node),
    )
