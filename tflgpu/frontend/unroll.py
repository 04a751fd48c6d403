"""WHILE loops whose number of iterations follows from constants and shapes, as what they do one after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from tflgpu.errors import ModelError
from tflgpu.frontend.graph_builder import GraphBuilder
from tflgpu.frontend.variable_operators import VARIABLE_OPERATORS
from tflgpu.graph.ir import Tensor
from tflgpu.model.model import Model, Operator, Subgraph
from tflgpu.model.quantization import is_quantized

# Operators that one loop may become. Each is a kernel or a part of one, which the device's compiler has to read.
MAX_OPERATORS = 1024

# Bytes of constants: every iteration has packed weights of its own.
MAX_CONSTANT_BYTES = 64 << 20


@dataclass(frozen=True)
class Callee:
    """A subgraph that is lowered into its caller's graph. lower: an operator of it; returns the obstacles."""

    graph: GraphBuilder
    lower: Callable[[Operator], Sequence[str]]


def unroll(operator: Operator, graph: GraphBuilder, model: Model, callee: Callable[[int], Callee]) -> Iterator[str]:
    """Do what a WHILE does; yields why the device cannot. callee: by the number of a subgraph.

    Raises ModelError for a subgraph that is not there.
    """
    written = len(graph.nodes)
    state = [value for t in operator.inputs if (value := graph.read(t)) is not None]
    result = _iterated(operator, state, graph, model, callee)
    if isinstance(result, str):
        del graph.nodes[written:]
        yield result
        return
    for index, value in zip(operator.outputs, result, strict=True):
        if not value.is_constant:  # it may be an input of the model, or another output
            copy = replace(value, id=next(graph.ids), name=graph.subgraph.tensors[index].name)
            value = graph.add_map(value, copy, operator=graph.source_of(operator))
        graph.bind(index, value)


def _iterated(
    operator: Operator, state: Sequence[Tensor], graph: GraphBuilder, model: Model, callee: Callable[[int], Callee]
) -> Sequence[Tensor] | str:
    """The state that a WHILE leaves; or why it cannot run on the device."""
    numbers = [operator.options.get(f"{part}_subgraph_index", 0) for part in ("cond", "body")]
    for number in numbers:
        if not 0 < number < len(model.subgraphs):
            raise ModelError(f"operator {operator.index} WHILE calls subgraph {number} of {len(model.subgraphs)}")
        called = model.subgraphs[number]
        if len(called.inputs) != len(operator.outputs) or len(state) != len(operator.outputs):
            return f"its subgraph {number} takes {len(called.inputs)} values, and it has {len(operator.outputs)}"
        if any(is_quantized(called.tensors[t]) for t in called.inputs):
            return f"its subgraph {number} takes quantized values"
    condition, body = (model.subgraphs[number] for number in numbers)
    if len(condition.outputs) != 1 or len(body.outputs) != len(state):
        return f"its subgraphs give {len(condition.outputs)} and {len(body.outputs)} values, not 1 and {len(state)}"
    test, step = map(callee, numbers)
    test.graph.caller = step.graph.caller = graph.source_of(operator)
    constants = sum(t.bytes for t in body.tensors if t.data is not None)
    iterations = 0
    while True:
        found = _called(test, condition, state)
        if isinstance(found, str):
            return f"in its condition, {found}"
        (again,) = found
        if again.data is None or again.size != 1:
            return "how often it goes through is known only at run time"
        if not again.data.reshape(-1)[0]:
            return state
        iterations += 1
        if iterations * len(body.operators) > MAX_OPERATORS or iterations * constants > MAX_CONSTANT_BYTES:
            return f"it goes through {iterations} times or more, too often for kernels of its own for each time"
        found = _called(step, body, state)
        if isinstance(found, str):
            return f"in its body, {found}"
        state = found


def _called(callee: Callee, subgraph: Subgraph, inputs: Sequence[Tensor]) -> list[Tensor] | str:
    """The outputs of a subgraph, lowered for these inputs; or the first obstacle."""
    graph = callee.graph
    graph.bound |= zip(subgraph.inputs, inputs, strict=True)
    try:
        for operator in subgraph.operators:
            reasons = callee.lower(operator)
            if operator.code in VARIABLE_OPERATORS:
                reasons = ["it uses a variable"]
            if reasons:
                return f"operator {operator.index} {operator.code}: {reasons[0]}"
    except ModelError as error:
        return str(error)
    return [graph.bound[t] for t in subgraph.outputs]
