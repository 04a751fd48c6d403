"""Where the graph meets the host: inputs and outputs are in the host's order, everything between is PHWC4.

Conversions are ordinary ``map`` nodes, and most of them are not needed: many shapes have the same bytes either way,
a convolution reads images of up to 4 channels as they come, and every kernel can store its result in the host's order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tflgpu.graph.ir import Graph, Node, Tensor, TensorId
from tflgpu.graph.layout import LANES, Geometry
from tflgpu.kernels.kernel import Storage
from tflgpu.target import ElementType, Target

# Integers of 64 bits are indices and sizes: 32 bits hold them, and not every device has more. Nor has every device
# doubles. Kernels that read a uint32 as a number say so themselves.
_ELEMENTS: dict[str, ElementType] = {
    "int64": "int",
    "int32": "int",
    "uint32": "int",
    "int16": "short",
    "uint16": "ushort",
    "int8": "char",
    "uint8": "uchar",
    "bool": "uchar",
    "float16": "half",
    "float64": "float",
}

# Kinds of nodes that say where the greatest (or the least) of their first input lies. Rounded to half, different
# numbers become equal, and the place that is found another one.
CHOOSE_A_PLACE = frozenset(("arg_extreme", "pool_index", "top_k"))


def add_conversions(graph: Graph) -> Graph:
    """Insert the conversions that are needed, so that graph inputs and outputs are only touched by who can do so."""
    fresh = graph.fresh_ids()
    new: list[Tensor] = []
    renamed: dict[TensorId, TensorId] = {}
    nodes: list[Node] = []

    def convert(tensor: TensorId) -> Tensor:
        converted = replace(graph[tensor], id=next(fresh), data=None)
        new.append(converted)
        nodes.append(Node("map", (tensor,), converted.id))
        return converted

    for tensor in graph.inputs:
        if graph.consumers.get(tensor) and not _readable(graph, tensor):
            renamed[tensor] = convert(tensor).id
    nodes += [replace(n, inputs=tuple(renamed.get(i, i) for i in n.inputs)) for n in graph.nodes]
    outputs: list[TensorId] = []
    for tensor in graph.outputs:
        outputs.append(tensor if _writable(graph, tensor) and tensor not in outputs else convert(tensor).id)
    return replace(graph.with_nodes(nodes, new), outputs=tuple(outputs)).with_nodes(nodes, new)


def _readable(graph: Graph, tensor: TensorId) -> bool:
    """Whether all readers of a graph input take it as the host gives it."""
    return Geometry(graph[tensor].shape).is_linear or all(
        _reads_linear(graph, n, tensor) for n in graph.consumers[tensor]
    )


def _reads_linear(graph: Graph, node: Node, tensor: TensorId) -> bool:
    """Whether ``node`` reads the tensor as its first input only, and can do so in the host's order."""
    if node.inputs[0] != tensor or node.inputs.count(tensor) > 1 or 0 in node.epilogue_inputs:
        return False
    if node.kind == "map":
        return graph[tensor].shape == graph[node.output].shape
    if node.kind != "convolution" or not graph[node.inputs[1]].is_constant:  # else weights are packed for PHWC4
        return False
    return Geometry(graph[tensor].shape).channels <= LANES


def _writable(graph: Graph, tensor: TensorId) -> bool:
    """Whether a graph output can be stored in the host's order by the node that computes it."""
    producer = graph.producer.get(tensor)
    if producer is None or graph.outputs.count(tensor) > 1:
        return False
    if producer.kind == "view":
        source = producer.inputs[0]
        return Geometry(graph[source].shape).is_linear and source not in graph.outputs and _writable(graph, source)
    return Geometry(graph[tensor].shape).is_linear or tensor not in graph.consumers


def roots(graph: Graph) -> dict[TensorId, TensorId]:
    """Every activation -> the tensor whose memory it shares: views have their source's."""
    root = {t: t for t in graph.given}
    for node in graph.nodes:
        root[node.output] = root[node.inputs[0]] if node.kind == "view" else node.output
    return root


def storages(graph: Graph, target: Target) -> Mapping[TensorId, Storage]:
    """The storage of every activation of a graph whose conversions are in place.

    In half precision, floats stay float where they meet the host, in copies of what the host gave, where a place is
    chosen by comparing them, and where the graph asks for it.
    """
    root = roots(graph)
    copies = {n.output for n in graph.nodes if n.kind == "map" and not n.epilogue and n.inputs[0] in graph.inputs}
    compared = {root[n.inputs[0]] for n in graph.nodes if n.kind in CHOOSE_A_PLACE}
    on_boundary = {root[t] for t in (*graph.inputs, *graph.outputs)}
    result = {}
    for tensor, origin in root.items():
        geometry = Geometry(graph[tensor].shape)
        boundary = origin in on_boundary
        precise = boundary or origin in copies or origin in compared or graph[origin].precise
        element = _ELEMENTS.get(graph[tensor].dtype) or ("float" if precise else target.storage)
        result[tensor] = Storage(geometry, element, boundary and not geometry.is_linear)
    return result
