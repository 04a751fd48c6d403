"""Run elementwise functions inside the kernel that computes their operand."""

from __future__ import annotations

from dataclasses import replace

from tflgpu.graph.ir import Graph, Input, Node, Operand, TensorId, Value, joint_sources
from tflgpu.passes.nest_concatenations import is_contiguous

# Tensors that a kernel takes at most, because some drivers allow only 64 arguments.
MAX_INPUTS = 16

# Epilogue ops of a kernel at most: the time of drivers' compilers grows with the square of their number. The longest
# epilogue of the shared models has 10.
MAX_EPILOGUE = 32


def inline_shared_source(graph: Graph) -> Graph:
    """``f(x, g(x))`` becomes one map node, so that x has one reader (swish is ``mul(x, logistic(x))``)."""
    nodes = {n.output: n for n in graph.nodes}
    for original in graph.nodes:
        node = nodes[original.output]
        if node.kind != "map":
            continue
        for position, tensor in enumerate(node.inputs[1:], 1):
            inner = nodes.get(tensor)
            if (
                inner is not None
                and inner.kind == "map"
                and inner.inputs == (node.inputs[0],)
                and graph[tensor].shape == graph[node.output].shape == graph[node.inputs[0]].shape
                and graph.sole_consumer(tensor) is not None
                and len(inner.epilogue) + len(node.epilogue) <= MAX_EPILOGUE
            ):
                nodes[node.output] = _inlined(node, position, inner)
                del nodes[tensor]
                break
    return graph.with_nodes(nodes[n.output] for n in graph.nodes if n.output in nodes)


def _inlined(node: Node, position: int, inner: Node) -> Node:
    """``inner``'s epilogue, then the node's, which reads inner's last value instead of input ``position``."""
    shift = len(inner.epilogue)

    def place(operand: Operand) -> Operand:
        if isinstance(operand, Value):
            return Value(operand.index + shift if operand.index else 0)
        if operand.index == position:
            return Value(shift)
        return Input(operand.index - (operand.index > position))

    epilogue = tuple(op.moved(place) for op in node.epilogue)
    inputs = node.inputs[:position] + node.inputs[position + 1 :]
    return replace(node, inputs=inputs, epilogue=inner.epilogue + epilogue, sources=joint_sources(inner, node))


def fuse_elementwise(graph: Graph) -> Graph:
    """Append each map node's epilogue to the node that computes one of its full-shape operands.

    The fused node takes the map node's place in the order, where all its operands are known. If there are several
    candidates, the one that runs last is taken: a residual ADD is fused into the convolution, not into the skip
    connection. A concatenation takes no kernel unless it has an epilogue.
    """
    nodes: dict[TensorId, Node] = {n.output: n for n in graph.nodes}
    position = {n.output: i for i, n in enumerate(graph.nodes)}
    for original in graph.nodes:
        node = nodes[original.output]
        if node.kind != "map":
            continue
        candidates = [
            t
            for t in dict.fromkeys(node.inputs)
            if fusable(graph, nodes.get(t), t, node) and not _may_vanish(graph, nodes[t])
        ]
        if candidates:
            best = max(candidates, key=lambda t: position[t])
            nodes[node.output] = fused(nodes.pop(best), node, node.inputs.index(best))
    return graph.with_nodes(nodes[n.output] for n in graph.nodes if n.output in nodes)


def _may_vanish(graph: Graph, node: Node) -> bool:
    """Whether a node is a concatenation whose inputs are likely to be computed inside its result."""
    return is_contiguous(graph, node) and all(t in graph.producer for t in node.inputs)


def fusable(graph: Graph, producer: Node | None, tensor: TensorId, node: Node) -> bool:
    """Whether ``producer``, which computes ``tensor``, can have the epilogue of ``node``, which reads it."""
    return (
        producer is not None
        and not producer.in_place
        and graph.sole_consumer(tensor) is not None
        and graph[tensor].shape == graph[node.output].shape
        and len(producer.inputs) + len(node.inputs) - 1 <= MAX_INPUTS
        and len(producer.epilogue) + len(node.epilogue) <= MAX_EPILOGUE
    )


def fused(producer: Node, node: Node, joint: int) -> Node:
    """``producer`` with the epilogue of map node ``node`` after its own. The map's input ``joint`` was ``producer``."""
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
