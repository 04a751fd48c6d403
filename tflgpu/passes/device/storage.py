"""How activations lie in memory: element types, the host's order at inputs and outputs, and images row by row.

Conversions between the host's order and PHWC4 are ordinary ``map`` nodes. Most of them are not needed: many shapes have
the same bytes in both orders, a convolution reads images of up to 4 channels in the host's order, a movement along
strides any tensor, and every kernel can store its result in it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from math import prod

from tflgpu.graph.ir import Graph, Node, TensorId, roots
from tflgpu.graph.layout import LANES, Geometry, keeps_bytes
from tflgpu.graph.rewrite_rules import NewTensors
from tflgpu.kernels.kernel import Storage
from tflgpu.kernels.rewriting import Planning
from tflgpu.ops.movement.shaping import Rearrange, rearranged, whole
from tflgpu.passes.half_precision import leaving_tensors
from tflgpu.target import DEVICE_ELEMENTS

# Kinds of nodes that give the place of the greatest (or the least) element of their first input, or places of its
# elements in a list. Different numbers may become equal when rounded to half, and then the place is another one.
CHOOSE_A_PLACE = frozenset(("arg_extreme", "buckets", "pool_index", "suppress", "top_k"))


def assign_storage(planning: Planning) -> Planning:
    """Assign the storage of every activation; conversions are in place.

    In half precision these stay float: graph inputs and outputs, copies of inputs, what outputs have elements of,
    tensors in which a node looks for a place (:data:`CHOOSE_A_PLACE`), and tensors that the graph marks as precise. The
    last and the next value of a state have one type, as they take each other's place.
    """
    graph, target = planning.graph, planning.target
    root = roots(graph)
    copies = {n.output for n in graph.of_kind("map") if not n.epilogue and n.inputs[0] in graph.inputs}
    compared = {root.get(n.inputs[0]) for n in graph.of_kind(*CHOOSE_A_PLACE)}  # None for a constant
    on_boundary = {root[t] for t in (*graph.inputs, *graph.outputs)}
    leaving = {root.get(t) for t in leaving_tensors(graph)}
    exact = _exact_outputs(graph, root) if target.family == "gpu" else set()
    marked = {origin for origin in root.values() if graph[origin].precise or graph[origin].wide}
    precise = _with_states(graph, root, on_boundary | copies | compared | leaving | marked)
    result = {}
    for tensor, origin in root.items():
        geometry = Geometry(graph[tensor].shape)
        boundary = origin in on_boundary
        element = DEVICE_ELEMENTS.get(graph[tensor].dtype) or ("float" if origin in precise else target.storage)
        linear = boundary and (not geometry.is_linear or origin in exact)
        result[tensor] = Storage(geometry, element, linear)
    return replace(planning, storage=result)


def _with_states(
    graph: Graph, root: Mapping[TensorId, TensorId], precise: set[TensorId | None]
) -> set[TensorId | None]:
    """``precise`` with both values of each state of which it has one."""
    pairs = [{root[state.read], root[state.written]} for state in graph.states]
    while more := [pair for pair in pairs if pair & precise and not pair <= precise]:
        precise = precise.union(*more)
    return precise


def _exact_outputs(graph: Graph, root: Mapping[TensorId, TensorId]) -> set[TensorId]:
    """Return the roots of outputs that are better stored element by element, although both orders are the same bytes.

    In PHWC4 lanes follow the last element, so that a caller's memory could not be the kernel's. No other kernel reads
    these outputs.
    """
    kept = {root[t] for state in graph.states for t in (state.read, state.written)} | set(graph.inputs)
    read = {root.get(t) for t, nodes in graph.consumers.items() if not all(n.is_view for n in nodes)}
    joined = {root[n.output] for n in graph.of_kind("concatenate")}  # which need not be kernels
    odd = {root[t] for t in graph.outputs if graph[t].size % LANES}
    return odd - kept - read - joined


def convert_layouts(planning: Planning) -> Planning:
    """:func:`add_conversions` as a pass."""
    return replace(planning, graph=add_conversions(planning.graph))


def add_conversions(graph: Graph) -> Graph:
    """Insert the conversions that are needed: nodes that cannot read or write the host's order get PHWC4."""
    graph = _moved_along_strides(graph)
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
    nodes = (*before, *graph.with_each(reading).nodes, *after)
    return replace(graph, outputs=tuple(outputs)).with_nodes(nodes, new)


def _moved_along_strides(graph: Graph) -> Graph:
    """Return the graph with a transpose or slice of an input that nothing else reads as a movement along strides, where
    these tell it."""
    moved: dict[TensorId, tuple[Node, ...]] = {}
    for node in graph.of_kind("rearrange"):
        source, shape = node.inputs[0], graph[node.inputs[0]].shape
        if source in graph.inputs and graph.sole_consumer(source) is not None and not Geometry(shape).is_linear:
            assert isinstance(node.attributes, Rearrange)
            strided = rearranged(whole(prod(shape)), shape, node.attributes, graph[node.output].shape)
            if strided is not None:
                moved[node.output] = (replace(node, kind="strided", attributes=strided),)
    return graph.with_replaced(moved) if moved else graph


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


def store_rows(planning: Planning) -> Planning:
    """Make views of reshapes whose input can be stored in row-major order, which every kernel can do."""
    graph, storage = planning.graph, dict(planning.storage)
    root = roots(graph)
    kept = {root[t] for t in graph.wanted}  # a kernel has to write the next value of a state, or what it is a view of
    for tensor in graph.producer:
        readers = graph.consumers.get(tensor, ())
        if readers and _is_of_kernel(planning, tensor) and all(_reads_rows(planning, node, kept) for node in readers):
            storage[tensor] = replace(storage[tensor], linear=True)
    views = (n for n in graph.of_kind("reshape") if storage.get(n.inputs[0]) != planning.storage.get(n.inputs[0]))
    replaced = {node.output: (replace(node, in_place=True),) for node in views}
    return planning.with_graph(graph.with_replaced(replaced), storage)


def _is_of_kernel(planning: Planning, tensor: TensorId) -> bool:
    """Whether a kernel computes a tensor that has its own memory, in PHWC4."""
    graph, node = planning.graph, planning.graph.producer[tensor]
    is_inside = any(n.kind == "concatenate" and n.in_place for n in graph.consumers.get(tensor, ()))
    own = not node.in_place and not is_inside and tensor == node.output and tensor not in graph.wanted
    return own and not planning.storage[tensor].linear


def _reads_rows(planning: Planning, node: Node, kept: Collection[TensorId]) -> bool:
    """Whether a node only reshapes its input, and its result is in row-major order in PHWC4."""
    if node.kind != "reshape" or node.in_place or node.epilogue or node.output in kept:
        return False
    output = planning.storage[node.output]
    same_form = output.form == planning.storage[node.inputs[0]].form
    return same_form and not output.linear and output.geometry.is_linear and output.geometry.channels % LANES == 0
