"""Where the graph meets the host: inputs and outputs are in the host's row-major order, all between is PHWC4.

Conversions are ordinary ``map`` nodes. Most of them are not needed: many shapes have the same bytes in both orders, a
convolution reads images of up to 4 channels in the host's order, and every kernel can store its result in it.
"""

from __future__ import annotations

from dataclasses import replace

from tflgpu.graph.ir import Graph, Node, TensorId
from tflgpu.graph.layout import LANES, Geometry, keeps_bytes
from tflgpu.graph.rewrite_rules import NewTensors
from tflgpu.kernels.rewriting import Planning


def convert_layouts(planning: Planning) -> Planning:
    """:func:`add_conversions` as a pass."""
    return replace(planning, graph=add_conversions(planning.graph))


def add_conversions(graph: Graph) -> Graph:
    """Insert the conversions that are needed: nodes that cannot read or write the host's order get PHWC4."""
    new = NewTensors(graph)

    def converted(tensor: TensorId) -> TensorId:
        return new.add(replace(graph[tensor], data=None)).id

    read = [t for t in graph.inputs if graph.consumers.get(t) and not _readable(graph, t)]
    renamed = {tensor: converted(tensor) for tensor in read}

    def reading(node: Node) -> Node:
        if _takes_hosts_order(graph, node):
            return node
        return replace(node, inputs=tuple(renamed.get(i, i) for i in node.inputs))

    outputs: list[TensorId] = []
    for tensor in graph.outputs:
        outputs.append(tensor if _writable(graph, tensor) and tensor not in outputs else converted(tensor))
    before = (Node("map", (tensor,), result) for tensor, result in renamed.items())
    written = zip(graph.outputs, outputs, strict=True)
    after = (Node("map", (tensor,), result) for tensor, result in written if tensor != result)
    nodes = (*before, *map(reading, graph.nodes), *after)
    return replace(graph, outputs=tuple(outputs)).with_nodes(nodes, new)


def _readable(graph: Graph, tensor: TensorId) -> bool:
    """Whether all readers of a graph input can read the host's order."""
    return Geometry(graph[tensor].shape).is_linear or all(
        _reads_linear(graph, n, tensor) for n in graph.consumers[tensor]
    )


def _reads_linear(graph: Graph, node: Node, tensor: TensorId) -> bool:
    """Whether ``node`` reads the tensor as its first input only, and can do so in the host's order."""
    if node.inputs[0] != tensor or node.inputs.count(tensor) > 1 or 0 in node.epilogue_inputs:
        return False
    if node.kind == "map":
        return graph[tensor].shape == graph[node.output].shape
    if (node.kind in ("reshape", "strided") and not node.in_place) or _takes_hosts_order(graph, node):
        return True
    if node.kind != "convolution" or not graph[node.inputs[1]].is_constant:  # else weights are packed for PHWC4
        return False
    return Geometry(graph[tensor].shape).channels <= LANES


def _takes_hosts_order(graph: Graph, node: Node) -> bool:
    """Whether a view of a graph input has in PHWC4 the bytes that the input has in the host's order."""
    shapes = [graph[t].shape for t in (*node.inputs, node.output)]
    return node.is_view and node.inputs[0] in graph.inputs and not keeps_bytes(*shapes)


def _writable(graph: Graph, tensor: TensorId) -> bool:
    """Whether a graph output can be stored in the host's order by the node that computes it."""
    producer = graph.producer.get(tensor)
    if producer is None or graph.outputs.count(tensor) > 1:
        return False
    if producer.is_view:
        source = producer.inputs[0]
        return Geometry(graph[source].shape).is_linear and source not in graph.outputs and _writable(graph, source)
    return Geometry(graph[tensor].shape).is_linear or tensor not in graph.consumers
