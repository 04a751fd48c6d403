"""IF: the branch that a constant chooses, where it stands; else both, each as a piece that the device can run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tflgpu.frontend.control_flow.callee import Callee, Separate, subgraphs_of
from tflgpu.frontend.control_flow.pieces import Branch, LoweredPiece, piece_of, place_inputs
from tflgpu.graph.ir import Tensor
from tflgpu.model.model import Model, Operator


def lower_branch(
    operator: Operator, values: Sequence[Tensor], model: Model, callee: Callable[[int], Callee], separate: Separate
) -> Branch | list[Tensor] | str:
    """Lower an IF.

    Args:
        operator: The IF.
        values: Those that it takes.
        model: Has the branches.
        callee: Gives a subgraph by its number, in the graph of the operator.
        separate: Gives a subgraph in a graph of its own.

    Returns:
        Both branches; the results of the one that is taken, if that is known; or why the device cannot run it.

    Raises:
        ModelError: A subgraph is not there.
    """
    outputs = len(operator.outputs)
    numbers = subgraphs_of(operator, model, ("then", "else"), len(values) - 1, (outputs, outputs))
    if isinstance(numbers, str):
        return numbers
    decision, *arguments = values
    if decision.size != 1 or decision.dtype != "bool":
        return f"its condition is {decision.dtype} of shape {list(decision.shape)}; one boolean was expected"
    if decision.data is not None:
        branch = callee(numbers[0 if decision.data.reshape(-1)[0] else 1])
        branch.graph.caller = operator.index
        taken = branch.call(arguments)
        return f"in the branch that it takes, {taken}" if isinstance(taken, str) else taken
    branches: list[tuple[LoweredPiece, list[Tensor]]] = []
    for name, number in zip(("then", "else"), numbers, strict=True):
        found = _lower(operator, separate(model.subgraphs[number], None), arguments)
        if isinstance(found, str):
            return f"in its {name} branch, {found}"
        branches.append(found)
    (then, results), (otherwise, others) = branches
    for position, (a, b) in enumerate(zip(results, others, strict=True)):
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            return (
                f"its branches give {a.dtype} of shape {list(a.shape)} and {b.dtype} of shape {list(b.shape)} for "
                f"result {position}"
            )
    return Branch(operator.inputs[0], then, otherwise, tuple(t.shape for t in results))


def _lower(operator: Operator, branch: Callee, arguments: Sequence[Tensor]) -> tuple[LoweredPiece, list[Tensor]] | str:
    branch.graph.caller = operator.index
    placed = place_inputs(branch, arguments)
    results = branch.call(placed)
    if isinstance(results, str):
        return results
    inputs = {t.id: operator.inputs[1 + p] for p, t in enumerate(placed) if not t.is_constant}
    return piece_of(operator, branch, inputs, results, operator.outputs), results
