"""IF: the branch that a constant chooses, where it stands; else both, each as a piece that the device can run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tflgpu.frontend.control_flow.callee import Callee, Separate, subgraphs_of
from tflgpu.frontend.control_flow.pieces import Branch, LoweredPiece, piece_of, place_inputs
from tflgpu.frontend.control_flow.unroll import bind_results
from tflgpu.frontend.graph_builder import GraphBuilder
from tflgpu.graph.ir import Tensor
from tflgpu.model.model import Model, Operator


def lower_branch(
    operator: Operator, graph: GraphBuilder, model: Model, callee: Callable[[int], Callee], separate: Separate
) -> Branch | str | None:
    """Both branches of an IF; why the device cannot run them; or None if the one that is taken was added to ``graph``.

    callee: of a subgraph by its number, in the same graph. Raises ModelError for a subgraph that is not there.
    """
    values = [value for t in operator.inputs if (value := graph.read(t)) is not None]
    outputs = len(operator.outputs)
    numbers = subgraphs_of(operator, model, ("then", "else"), len(values) - 1, (outputs, outputs))
    if isinstance(numbers, str):
        return numbers
    decision, *arguments = values
    if decision.size != 1 or decision.dtype != "bool":
        return f"its condition is {decision.dtype} of shape {list(decision.shape)}; one truth value was expected"
    if decision.data is not None:
        return _taken(operator, graph, callee(numbers[0 if decision.data.reshape(-1)[0] else 1]), arguments)
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


def _taken(operator: Operator, graph: GraphBuilder, branch: Callee, arguments: Sequence[Tensor]) -> str | None:
    """Add the branch that a constant chooses to the caller's graph."""
    written = len(graph.nodes)
    branch.graph.caller = graph.source_of(operator)
    results = branch.call(arguments)
    if isinstance(results, str):
        del graph.nodes[written:]
        return f"in the branch that it takes, {results}"
    bind_results(operator, results, graph)
    return None


def _lower(operator: Operator, branch: Callee, arguments: Sequence[Tensor]) -> tuple[LoweredPiece, list[Tensor]] | str:
    branch.graph.caller = operator.index
    placed = place_inputs(branch, arguments)
    results = branch.call(placed)
    if isinstance(results, str):
        return results
    inputs = {t.id: operator.inputs[1 + p] for p, t in enumerate(placed) if not t.is_constant}
    return piece_of(operator, branch, inputs, results, operator.outputs), results
