"""The operators of variables, which the lowering does itself, and the states that variables leave in the graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from tflgpu.errors import ModelError
from tflgpu.frontend.graph_builder import GraphBuilder
from tflgpu.frontend.variables import Variables
from tflgpu.graph.ir import State, TensorId
from tflgpu.model.model import Model, Operator
from tflgpu.ops.movement.gather import Gather

# Their numbers of inputs and outputs.
VARIABLE_OPERATORS: Mapping[str, tuple[int, int]] = {
    "CALL_ONCE": (0, 0),
    "VAR_HANDLE": (0, 1),
    "READ_VARIABLE": (1, 1),
    "ASSIGN_VARIABLE": (2, 0),
}

# Lowers the operators of a subgraph that CALL_ONCE runs: its variables, and the obstacles that there were.
LowerOnce = Callable[[int], tuple[Variables, tuple[str, ...]]]


def use_variables(operator: Operator, graph: GraphBuilder, model: Model, lower_once: LowerOnce) -> Iterator[str]:
    """Do one of ``VARIABLE_OPERATORS``; yields the obstacles. Raises ModelError for a subgraph that is not there."""
    wanted, found = VARIABLE_OPERATORS[operator.code], (len(operator.inputs), len(operator.outputs))
    if found != wanted or -1 in operator.inputs:
        yield f"it has {found[0]} inputs and {found[1]} outputs where {wanted[0]} and {wanted[1]} are expected"
        return
    tensors = [graph.subgraph.tensors[t] for t in (*operator.inputs, *operator.outputs)]
    match operator.code:
        case "VAR_HANDLE":
            graph.variables.define_handle(operator)
        case "READ_VARIABLE":
            value = graph.variables.read(tensors[0].index, tensors[1])
            if isinstance(value, str):
                yield value
            else:
                graph.bind(tensors[1].index, replace(value, name=tensors[1].name))
        case "ASSIGN_VARIABLE":
            source = graph.read(tensors[1].index)
            assert source is not None
            refusal = graph.variables.assign(tensors[0].index, source, tensors[1])
            if refusal is not None:
                yield refusal
        case "CALL_ONCE":
            yield from _call_once(operator.options.get("init_subgraph_index", 0), graph, model, lower_once)


def _call_once(index: int, graph: GraphBuilder, model: Model, lower_once: LowerOnce) -> Iterator[str]:
    """Lower the subgraph that gives variables their first values, all of which must be known now."""
    if not 0 < index < len(model.subgraphs):
        raise ModelError(f"a CALL_ONCE calls subgraph {index} of {len(model.subgraphs)}")
    if any(o.code == "CALL_ONCE" for o in model.subgraphs[index].operators):
        yield f"its subgraph {index} has a CALL_ONCE of its own"
        return
    variables, obstacles = lower_once(index)
    yield from (f"in its subgraph {index}, {obstacle}" for obstacle in obstacles)
    if not obstacles:
        yield from graph.variables.initialize(variables)


def states_of(graph: GraphBuilder) -> Iterator[State]:
    """The variables whose value at the start of a run matters. One that nothing assigns becomes a constant.

    Raises ModelError for a variable that would change its shape.
    """
    for variable in graph.variables.known.values():
        start, value = variable.start, variable.value
        if start is None or value is None:
            continue
        if value.id == start.id:
            first = np.zeros(start.shape, start.dtype) if variable.initial is None else variable.initial
            graph.tensors[start.id] = replace(start, data=first)
            continue
        if value.shape != start.shape:
            shapes = f"{list(start.shape)} takes a value of shape {list(value.shape)}"
            raise ModelError(f"variable {variable.name!r} of shape {shapes}")
        # What is computed of the last value would be rounded to half precision again in every run. Elements that only
        # take the place of others, as those of a cache of keys and values, are rounded once.
        precise = graph.tensors[value.id].precise or not replaces_elements(graph, value.id, start.id)
        for tensor in (start.id, value.id):
            graph.tensors[tensor] = replace(graph.tensors[tensor], precise=precise)
        start, value = graph.tensors[start.id], graph.tensors[value.id]
        # The value may also be a constant, an input, an output or another variable's: the state gets a copy, which
        # fuses into the node that computes the value if the state alone wants it.
        written = graph.add_map(value, replace(start, id=next(graph.ids)))
        yield State(variable.name, start.id, written.id, variable.initial, variable.held)


def replaces_elements(graph: GraphBuilder, value: TensorId, start: TensorId) -> bool:
    """Whether a state's next value is the last one with other elements in some places: nothing is computed of it."""
    by_output = {node.output: node for node in graph.nodes}
    while value != start:
        node = by_output.get(value)
        if node is None or node.epilogue:
            return False
        if isinstance(node.attributes, Gather) and node.attributes.background is not None:
            value = node.inputs[node.attributes.background]
        elif node.kind == "reshape":
            value = node.inputs[0]
        else:
            return False
    return True
