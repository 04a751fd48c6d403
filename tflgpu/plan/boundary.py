"""Where the graph meets the host: inputs and outputs are in the host's row-major order, all between is PHWC4.

Conversions are ordinary ``map`` nodes. Most of them are not needed: many shapes have the same bytes in both orders, a
convolution reads images of up to 4 channels in the host's order, and every kernel can store its result in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tflgpu.graph.ir import Graph, Node, Tensor, TensorId
from tflgpu.graph.layout import LANES, Geometry, keeps_bytes
from tflgpu.kernels.kernel import Storage
from tflgpu.ops.arithmetic.reduction import Reduce
from tflgpu.ops.image.pooling import Pool
from tflgpu.target import DEVICE_ELEMENTS, Target

# Kinds of nodes that give the place of the greatest (or the least) element of their first input. Different numbers may
# become equal when rounded to half, and then the place is another one.
CHOOSE_A_PLACE = frozenset(("arg_extreme", "pool_index", "top_k"))

# Kinds of nodes that move elements, or give what lies between neighbours.
TAKE_ELEMENTS = frozenset(
    ("concatenate", "gather", "map", "rearrange", "reshape", "resize_bilinear", "strided", "unpool")
)


def add_conversions(graph: Graph) -> Graph:
    """Insert the conversions that are needed: nodes that cannot read or write the host's order get PHWC4."""
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
    for node in graph.nodes:
        if not _takes_hosts_order(graph, node):
            node = replace(node, inputs=tuple(renamed.get(i, i) for i in node.inputs))
        nodes.append(node)
    outputs: list[TensorId] = []
    for tensor in graph.outputs:
        outputs.append(tensor if _writable(graph, tensor) and tensor not in outputs else convert(tensor).id)
    return replace(graph.with_nodes(nodes, new), outputs=tuple(outputs)).with_nodes(nodes, new)


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


def roots(graph: Graph) -> dict[TensorId, TensorId]:
    """Every activation -> the tensor whose memory it has; a view has its source's."""
    root = {t: t for t in graph.given}
    for node in graph.nodes:
        root |= {t: root[node.inputs[0]] if node.is_view else t for t in node.outputs}
    return root


def _leaving(graph: Graph) -> set[TensorId]:
    """The tensors of which outputs have elements, or means between neighbours: stored in half, these would be rounded,
    and beyond 65504 another number."""
    found = set(graph.outputs)
    for node in reversed(graph.nodes):
        if node.output in found and not node.epilogue and _takes_elements(node):
            found.update(node.inputs)
    return found


def _takes_elements(node: Node) -> bool:
    if isinstance(node.attributes, Reduce | Pool):
        return node.attributes.function in ("max", "min", "maximum")
    return node.kind in TAKE_ELEMENTS


def storages(graph: Graph, target: Target) -> Mapping[TensorId, Storage]:
    """The storage of every activation of a graph whose conversions are in place.

    In half precision these stay float: graph inputs and outputs, copies of inputs, what outputs have elements of,
    tensors in which a node looks for a place (:data:`CHOOSE_A_PLACE`), and tensors that the graph marks as precise.
    """
    root = roots(graph)
    copies = {n.output for n in graph.nodes if n.kind == "map" and not n.epilogue and n.inputs[0] in graph.inputs}
    compared = {root.get(n.inputs[0]) for n in graph.nodes if n.kind in CHOOSE_A_PLACE}  # None for a constant
    on_boundary = {root[t] for t in (*graph.inputs, *graph.outputs)}
    leaving = {root.get(t) for t in _leaving(graph)}
    exact = _exact_outputs(graph, root) if target.family == "gpu" else set()
    result = {}
    for tensor, origin in root.items():
        geometry = Geometry(graph[tensor].shape)
        boundary = origin in on_boundary
        precise = boundary or origin in copies | compared | leaving or graph[origin].precise
        element = DEVICE_ELEMENTS.get(graph[tensor].dtype) or ("float" if precise else target.storage)
        linear = boundary and (not geometry.is_linear or origin in exact)
        result[tensor] = Storage(geometry, element, linear)
    return result


def _exact_outputs(graph: Graph, root: Mapping[TensorId, TensorId]) -> set[TensorId]:
    """The roots of outputs that are better stored element by element, although both orders are the same bytes.

    In PHWC4 lanes follow the last element, so that a caller's memory could not be the kernel's. No other kernel reads
    these outputs.
    """
    kept = {root[t] for state in graph.states for t in (state.read, state.written)} | set(graph.inputs)
    read = {root.get(i) for n in graph.nodes if not n.is_view for i in n.inputs}
    joined = {root[n.output] for n in graph.nodes if n.kind == "concatenate"}  # which need not be kernels
    odd = {root[t] for t in graph.outputs if graph[t].size % LANES}
    return odd - kept - read - joined
