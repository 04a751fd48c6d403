"""Run elementwise functions inside the kernel that computes their operand."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import reduce

from tflgpu.graph.ir import Graph, Input, Node, Operand, TensorId, Value, joint_sources
from tflgpu.graph.rewrite_rules import AnyGraph, Built, Draft, Match, Rule, Rules, op, rewrite
from tflgpu.passes.slice_concatenations import is_contiguous

# Tensors that a kernel takes at most, because some drivers allow only 64 arguments.
MAX_INPUTS = 16

# Epilogue ops of a kernel at most: the time of drivers' compilers grows with the square of their number. The longest
# epilogue of the shared models has 10.
MAX_EPILOGUE = 32


def _inline_source(match: Match) -> Built:
    """``f(x, g(x))`` becomes one map node, so that x has one reader (swish is ``mul(x, logistic(x))``).

    g may be several map nodes in a row, such as a function and the rounding of its result.
    """
    graph, node = match.graph, match.node
    full = [t for t in node.inputs if graph[t].shape == graph[node.output].shape]
    for tensor in full:
        chain = _chain(graph, tensor, {t for t in full if t != tensor})
        if chain and sum(len(n.epilogue) for n in (*chain, node)) <= MAX_EPILOGUE:
            inner = reduce(lambda first, second: fused(first, second, 0), chain)
            return [_with_operand(node, tensor, inner, inner.inputs[0])]
    return None


def _chain(graph: Draft, tensor: TensorId, sources: set[TensorId]) -> list[Node]:
    """Return the map nodes from one of ``sources`` to ``tensor``, of one input and one reader each; none if there are
    none."""
    chain: list[Node] = []
    while tensor not in sources:
        inner = graph.producer.get(tensor)
        if inner is None or inner.kind != "map" or len(inner.inputs) != 1 or graph.sole_consumer(tensor) is None:
            return []
        chain.insert(0, inner)
        tensor = inner.inputs[0]
        if graph[tensor].shape != graph[inner.output].shape:
            return []
    return chain


inline_shared_source = Rules((Rule("inline_shared_source", op("map"), _inline_source),))


def _fuse(match: Match) -> Built:
    """Append a map node's epilogue to the node that computes one of its full-shape operands.

    The fused node takes the map node's place in the order, where all its operands are known. If there are several
    candidates, a product of activations is taken, because it may be the scores of attention, to which a mask is added.
    Else the one that runs last is: a residual ADD is fused into the convolution, not into the skip connection. A
    concatenation takes no kernel unless it has an epilogue.
    """
    graph, node = match.graph, match.node
    operands = {t: graph.producer.get(t) for t in node.inputs}
    candidates = [
        t
        for t, producer in operands.items()
        if producer is not None and fusable(graph, producer, t, node) and not _may_vanish(graph, producer)
    ]
    if not candidates:
        return None
    best = max(candidates, key=lambda t: (graph.producer[t].kind == "matmul", graph.place(t)))
    return [fused(graph.producer[best], node, node.inputs.index(best))]


fuse_elementwise = Rules((Rule("fuse_elementwise", op("map"), _fuse),))


def inline_operands(graph: Graph, primaries: Collection[TensorId] = ()) -> Graph:
    """Make one map node of ``f(x, g(y, z))``, if nothing else reads what g computes.

    A rotary embedding, ``x * cosine - y * sine``, is one node then. Only map nodes take operands: in the epilogue of
    another kernel they would need registers.

    Args:
        graph: Any graph.
        primaries: Tensors that a map can read as its first input only.
    """

    def inline(match: Match) -> Built:
        node = match.node
        for tensor in node.inputs[1:]:
            inner = match.graph.producer.get(tensor)
            is_map = inner is not None and inner.kind == "map" and not set(inner.inputs).intersection(primaries)
            if inner is not None and is_map and fusable(match.graph, inner, tensor, node):
                return [_with_operand(node, tensor, inner, node.inputs[0])]
        return None

    return rewrite(graph, [Rule("inline_operands", op("map"), inline)]).graph


def _with_operand(node: Node, tensor: TensorId, inner: Node, first: TensorId) -> Node:
    """``node`` with the epilogue of ``inner`` before its own, which reads the last value of that for ``tensor``.

    first: what becomes the first input.
    """
    last = len(inner.epilogue)
    inputs = tuple(dict.fromkeys(t for t in (first, *node.inputs, *inner.inputs) if t != tensor))

    def read(source: TensorId) -> Operand:
        return Value(0) if source == first else Input(inputs.index(source))

    def place_inner(operand: Operand) -> Operand:
        return operand if isinstance(operand, Value) and operand.index else read(inner.inputs[operand.index])

    def place(operand: Operand) -> Operand:
        if isinstance(operand, Value) and operand.index:
            return Value(operand.index + last)
        source = node.inputs[operand.index]
        if source == tensor:
            return Value(last) if last else read(inner.inputs[0])  # which broadcasts
        return read(source)

    epilogue = (*(op.moved(place_inner) for op in inner.epilogue), *(op.moved(place) for op in node.epilogue))
    return replace(node, inputs=inputs, epilogue=epilogue, sources=joint_sources(inner, node))


def _may_vanish(graph: Draft, node: Node) -> bool:
    """Whether a node is a concatenation whose inputs are likely to be computed inside its result."""
    return is_contiguous(graph, node) and all(t in graph.producer for t in node.inputs)


def fusable(graph: AnyGraph, producer: Node | None, tensor: TensorId, node: Node) -> bool:
    """Whether a node can have the epilogue of another one.

    Args:
        graph: The graph of both.
        producer: The node that computes ``tensor``; None if no node does.
        tensor: The tensor that both share.
        node: A map that reads the tensor.
    """
    return (
        producer is not None
        and not producer.in_place
        and graph.sole_consumer(tensor) is not None
        and graph[tensor].shape == graph[node.output].shape
        and len(producer.inputs) + len(node.inputs) - 1 <= MAX_INPUTS
        and len(producer.epilogue) + len(node.epilogue) <= MAX_EPILOGUE
    )


def fused(producer: Node, node: Node, joint: int) -> Node:
    """Return a node with the epilogue of a map after its own.

    Args:
        producer: The first node.
        node: The map.
        joint: The place among the map's inputs of what the producer computes.
    """
    last = len(producer.epilogue)
    others = [t for i, t in enumerate(node.inputs) if i != joint]
    inputs = [*producer.inputs, *others]
    # Value 0 of a map node is its input 0. If ``joint`` is another input, input 0 becomes an ordinary one.
    new_index = {i: len(producer.inputs) + k for k, i in enumerate(i for i in range(len(node.inputs)) if i != joint)}

    def place(operand: Operand) -> Operand:
        if isinstance(operand, Value) and operand.index > 0:
            return Value(operand.index + last)
        source = 0 if isinstance(operand, Value) else operand.index
        return Value(last) if source == joint else Input(new_index[source])

    epilogue = tuple(op.moved(place) for op in node.epilogue)
    return replace(
        producer,
        inputs=tuple(inputs),
        output=node.output,
        epilogue=producer.epilogue + epilogue,
        sources=joint_sources(producer, node),
    )
