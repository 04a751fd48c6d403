"""WHILE loops whose number of iterations follows from constants and shapes, as what they do one after another."""

from __future__ import annotations

from collections.abc import Callable

from tflgpu.frontend.control_flow.callee import Callee, loop_subgraphs
from tflgpu.frontend.control_flow.counting import known_iterations
from tflgpu.graph.ir import Tensor
from tflgpu.model.model import Model, Operator

# Operators of its own body that one loop may become. Each is a kernel or a part of one, which the device's compiler has
# to read.
MAX_OPERATORS = 1024

# Bytes of constants: every iteration has packed weights of its own.
MAX_CONSTANT_BYTES = 64 << 20


def unroll(
    operator: Operator, state: list[Tensor], model: Model, callee: Callable[[int], Callee]
) -> list[Tensor] | str:
    """Return the state that a WHILE leaves; or why it cannot become its iterations.

    Args:
        operator: The WHILE.
        state: The values that it takes.
        model: Has the subgraphs.
        callee: Gives a subgraph by its number, in the graph of the operator.

    Raises:
        ModelError: A subgraph is not there.
    """
    numbers = loop_subgraphs(operator, model, state)
    if isinstance(numbers, str):
        return numbers
    test, step = map(callee, numbers)
    test.graph.caller = step.graph.caller = operator.index
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
