"""WHILE loops whose number of iterations follows from constants and shapes, as what they do one after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from tflgpu.frontend.control_flow.callee import Callee, subgraphs_of
from tflgpu.frontend.control_flow.counting import known_iterations
from tflgpu.frontend.graph_builder import GraphBuilder
from tflgpu.graph.ir import Tensor
from tflgpu.model.model import Model, Operator

# Operators of its own body that one loop may become. Each is a kernel or a part of one, which the device's compiler has
# to read.
MAX_OPERATORS = 1024

# Bytes of constants: every iteration has packed weights of its own.
MAX_CONSTANT_BYTES = 64 << 20


def unroll(operator: Operator, graph: GraphBuilder, model: Model, callee: Callable[[int], Callee]) -> Iterator[str]:
    """Do what a WHILE does; yields why that is not possible. callee: by the number of a subgraph.

    Raises ModelError for a subgraph that is not there.
    """
    written = len(graph.nodes)
    state = [value for t in operator.inputs if (value := graph.read(t)) is not None]
    result = _iterated(operator, state, graph, model, callee)
    if isinstance(result, str):
        del graph.nodes[written:]
        yield result
    else:
        bind_results(operator, result, graph)


def bind_results(operator: Operator, results: Sequence[Tensor], graph: GraphBuilder) -> None:
    """Let the results of a subgraph be those of the operator that calls it."""
    for index, value in zip(operator.outputs, results, strict=True):
        if not value.is_constant:  # it may be an input of the model, or another output
            copy = replace(value, id=next(graph.ids), name=graph.subgraph.tensors[index].name)
            value = graph.add_map(value, copy, operator=graph.source_of(operator))
        graph.bind(index, value)


def _iterated(
    operator: Operator, state: Sequence[Tensor], graph: GraphBuilder, model: Model, callee: Callable[[int], Callee]
) -> Sequence[Tensor] | str:
    """The state that a WHILE leaves; or why it cannot become its iterations."""
    numbers = subgraphs_of(operator, model, ("cond", "body"), len(operator.outputs), (1, len(operator.outputs)))
    if isinstance(numbers, str):
        return numbers
    if len(state) != len(operator.outputs):
        return f"it takes {len(state)} values and gives {len(operator.outputs)}"
    test, step = map(callee, numbers)
    test.graph.caller = step.graph.caller = graph.source_of(operator)
    constants = sum(t.bytes for t in step.subgraph.tensors if t.data is not None)
    known = known_iterations(operator, test.subgraph, step.subgraph, state) or 0
    if refusal := step.budget.refusal(test.subgraph, step.subgraph, times=max(1, known)):
        return refusal
    iterations = 0
    while True:
        found = test.call(state)
        if isinstance(found, str):
            return f"in its condition, {found}"
        (again,) = found
        if again.data is None or again.size != 1:
            return "how often it goes through is known only at run time"
        if not again.data.reshape(-1)[0]:
            return state
        iterations += 1
        times = max(iterations, known)
        if times * max(1, len(step.subgraph.operators)) > MAX_OPERATORS or times * constants > MAX_CONSTANT_BYTES:
            return f"it goes through {times} times or more, too often for kernels of its own for each time"
        found = step.call(state)
        if isinstance(found, str):
            return f"in its body, {found}"
        state = found
