"""Operators that call subgraphs: into the graph that is being lowered, or as pieces apart from it.

Composites always become a part of the graph, WHILE and IF where constants decide.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from tflgpu.frontend.control_flow.branch import lower_branch
from tflgpu.frontend.control_flow.callee import Callee, Separate
from tflgpu.frontend.control_flow.composite import COMPOSITE, inline
from tflgpu.frontend.control_flow.loop import lower_loop
from tflgpu.frontend.control_flow.parted_loop import LowerParts, lower_parted_loop
from tflgpu.frontend.control_flow.pieces import Call
from tflgpu.frontend.control_flow.unroll import unroll
from tflgpu.frontend.graph_builder import GraphBuilder
from tflgpu.graph.ir import Tensor
from tflgpu.model.model import Model, Operator
from tflgpu.model.tensor_info import TensorIndex

CONTROL_FLOW = ("WHILE", "IF", COMPOSITE)


def lower_call(
    operator: Operator,
    graph: GraphBuilder,
    model: Model,
    callee: Callable[[int], Callee],
    separate: Separate,
    lower_parts: LowerParts | None,
    wanted: Collection[TensorIndex],
    apart: dict[int, Call] | None,
) -> str | None:
    """Do what an operator of ``CONTROL_FLOW`` does.

    Args:
        operator: The operator.
        graph: Gets the nodes.
        model: Has the subgraphs.
        callee: Gives a subgraph by its number, in ``graph``.
        separate: Gives a subgraph in a graph of its own.
        lower_parts: Lowers a subgraph that has loops and branches of its own; None if these are for the CPU.
        wanted: Tensors of the file that something reads, or that are outputs.
        apart: Gets the pieces of an operator that cannot become a part of ``graph``; None if there may be none.

    Returns:
        Why the device cannot do it; None if it can.

    Raises:
        ModelError: A subgraph is not there.
    """
    found: Call | list[Tensor] | str
    written, known_as = len(graph.nodes), replace(operator, index=graph.source_of(operator))
    inputs = [graph.read(t) for t in operator.inputs]
    values = [value for value in inputs if value is not None]
    if operator.code == COMPOSITE:
        found = inline(known_as, inputs, graph, callee)
    elif operator.code == "IF":
        found = lower_branch(known_as, values, model, callee, separate)
    else:
        found = unroll(known_as, values, model, callee)
        if isinstance(found, str) and apart is not None:
            found = lower_loop(known_as, values, model, separate, wanted)
            if isinstance(found, str) and lower_parts is not None and _has_calls(operator, model):
                parted = lower_parted_loop(known_as, values, model, separate, lower_parts)
                found = found if isinstance(parted, str) else parted
    if isinstance(found, list):
        for index, value in zip(operator.outputs, found, strict=True):
            if not value.is_constant:  # it may be an input of the model, or another output
                copy = replace(value, id=next(graph.ids), name=graph.subgraph.tensors[index].name)
                value = graph.add_map(value, copy, operator=known_as.index)
            graph.bind(index, value)
        return None
    del graph.nodes[written:]
    if isinstance(found, str):
        return found
    if apart is None:
        return "which branch it takes is known only at run time"
    apart[operator.index] = found
    for index, shape in zip(operator.outputs, found.shapes, strict=True):
        graph.bind(index, graph.tensor(replace(graph.subgraph.tensors[index], shape=shape)))
    return None


def _has_calls(operator: Operator, model: Model) -> bool:
    """Whether the body of a WHILE calls subgraphs."""
    number = operator.options.get("body_subgraph_index", 0)
    return 0 < number < len(model.subgraphs) and any(o.code in CONTROL_FLOW for o in model.subgraphs[number].operators)
