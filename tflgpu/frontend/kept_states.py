"""The states that variables leave in the graph."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from tflgpu.errors import ModelError
from tflgpu.frontend.graph_builder import GraphBuilder
from tflgpu.graph.ir import State, TensorId
from tflgpu.ops.movement.gather import Gather


def states_of(graph: GraphBuilder) -> Iterator[State]:
    """Yield the variables that have another value after a run, and those that callers hold.

    A variable that nothing assigns becomes a constant.

    Args:
        graph: Is complete, but for its states.

    Raises:
        ModelError: A variable would change its shape.
    """
    for variable in graph.variables.known.values():
        start, value = graph.tensors.get(variable.start.id, variable.start), variable.value
        graph.tensors[start.id] = start
        if value.id == start.id and variable.held:
            yield State(variable.name, start.id, start.id, variable.initial, True)
            continue
        if value.id == start.id:
            first = np.zeros(start.shape, start.dtype) if variable.initial is None else variable.initial
            graph.tensors[start.id] = replace(start, data=first)
            continue
        if (value.shape, value.dtype) != (start.shape, start.dtype):
            forms = f"{start.dtype}{list(start.shape)} takes a value of {value.dtype}{list(value.shape)}"
            raise ModelError(f"variable {variable.name!r} of {forms}")
        # A state that is computed from its last value would be rounded to half precision again in every run. Elements
        # that only take the place of others, as those of a cache of keys and values, are rounded once.
        is_precise = variable.precise or graph.tensors[value.id].precise
        precise = is_precise or not replaces_elements(graph, value.id, start.id)
        for tensor in (start.id, value.id):
            graph.tensors[tensor] = replace(graph.tensors[tensor], precise=precise)
        start, value = graph.tensors[start.id], graph.tensors[value.id]
        # The value may also be a constant, an input, an output or another variable's: the state gets a copy, which
        # fuses into the node that computes the value if the state alone wants it.
        written = graph.add_map(value, replace(start, id=next(graph.ids)))
        yield State(variable.name, start.id, written.id, variable.initial, variable.held)


def replaces_elements(graph: GraphBuilder, value: TensorId, start: TensorId) -> bool:
    """Tell whether a state's next value is its last value with some elements replaced, without arithmetic.

    Args:
        graph: Has the nodes.
        value: The next value.
        start: The last value.
    """
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
