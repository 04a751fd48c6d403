"""How activations lie in memory: element types, and the order of model inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tflgpu.graph.ir import Graph, TensorId, roots
from tflgpu.graph.layout import LANES, Geometry
from tflgpu.kernels.kernel import Storage
from tflgpu.kernels.rewriting import Planning
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
