"""Images that kernels store row by row, because nothing but matrices of these rows is read of them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from tflgpu.graph.ir import Node, TensorId, roots
from tflgpu.graph.layout import LANES
from tflgpu.kernels.rewriting import Planning


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
