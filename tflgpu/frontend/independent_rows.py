"""Comparison of two lowerings of a model: whether they differ in the batch size only, and rows are independent.

Rows are the elements along the first axis of every input and output. What a node does to an axis of a size that only a
run can tell is known already (:class:`~tflgpu.frontend.run_time_sizes.open_axes.GraphSizes`): it computes the elements
that are meant without those that are not, or says that it cannot.
"""

from __future__ import annotations

import numpy as np

from tflgpu.frontend.lowered import Lowered
from tflgpu.frontend.run_time_sizes.open_axes import GraphSizes
from tflgpu.graph.ir import Graph, Node, Tensor
from tflgpu.graph.new_tensors import NewTensors
from tflgpu.ops import Emitter
from tflgpu.ops.arithmetic.scan import CumulativeSum
from tflgpu.ops.movement.gather import Gather, follow
from tflgpu.ops.sized import Number, Open, Refused


def rows_of(graph: Graph) -> int | None:
    """How many rows each input of a graph has; None if they have different numbers, or none."""
    rows = {graph[t].shape[0] if graph[t].shape else None for t in graph.inputs}
    return rows.pop() if len(rows) == 1 else None


def has_same_rows(one: Lowered, other: Lowered) -> bool:
    """Tell whether runs of one lowering can compute a batch of the other one.

    Args:
        one: A lowered model.
        other: The same model with another batch.
    """
    graphs = one.graph, other.graph
    rows = [rows_of(graph) for graph in graphs]
    if None in rows or rows[0] == rows[1] or any(x.checks or x.trims or x.open or not x.is_whole for x in (one, other)):
        return False
    larger = max(graphs, key=lambda graph: rows_of(graph) or 0)
    return _are_alike(*graphs) and _are_independent(larger)


def _are_independent(graph: Graph) -> bool:
    rows = rows_of(graph) or 0
    number = Number(-1, 0, Tensor(-1, "", (), "int32"), 1, rows)
    sizes, emit = GraphSizes(), Emitter(NewTensors(graph).ids, 0)
    sizes.open = {tensor: {0: number} for tensor in graph.inputs}
    emit.nodes = list(graph.nodes)
    try:
        sizes.follow(emit, graph.tensors)
    except Refused:
        return False
    is_masked = len(emit.nodes) > len(graph.nodes)  # a node looks at all rows
    if graph.states or is_masked or any(_mixes(node, sizes.open.get(node.inputs[0], {})) for node in graph.nodes):
        return False
    return all(sizes.open.get(t) == {0: number} for t in graph.outputs)


def _mixes(node: Node, rows: Open) -> bool:
    """Whether a row of a node's result depends on other rows that are meant, which open axes allow."""
    match node.attributes:
        case CumulativeSum(axis=axis):
            return axis in rows
        case Gather(positions=positions):
            return any(positions[axis] not in map(follow, range(len(positions) + 8)) for axis in rows)
    return node.kind == "suppress" and bool(rows)


def _are_alike(one: Graph, other: Graph) -> bool:
    """Whether both have the same nodes and constants."""
    if len(one.nodes) != len(other.nodes) or len(one.inputs) != len(other.inputs):
        return False
    twins = dict(zip(one.inputs, other.inputs, strict=True))
    for a, b in zip(one.nodes, other.nodes, strict=True):
        if repr((a.kind, a.attributes, a.epilogue, a.views)) != repr((b.kind, b.attributes, b.epilogue, b.views)):
            return False
        if len(a.inputs) != len(b.inputs) or len(a.outputs) != len(b.outputs):
            return False
        for mine, its in zip(a.inputs, b.inputs, strict=True):
            if mine not in twins and not _are_equal(one[mine], other[its]):
                return False
            if twins.setdefault(mine, its) != its:
                return False
        twins |= zip(a.outputs, b.outputs, strict=True)
    return [twins.get(t) for t in one.outputs] == list(other.outputs)


def _are_equal(one: Tensor, other: Tensor) -> bool:
    mine, its = one.data, other.data
    if mine is None or its is None or (mine.shape, mine.dtype) != (its.shape, its.dtype):
        return False
    return np.ascontiguousarray(mine).tobytes() == np.ascontiguousarray(its).tobytes()
