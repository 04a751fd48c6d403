"""Loops whose condition compares integers that count in equal steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tflgpu.frontend.control_flow.affine import Affine, Elements, affine_elements
from tflgpu.graph.ir import Tensor
from tflgpu.model.model import FileTensor, Operator, Subgraph
from tflgpu.model.run_time_numbers import Bound, Scalar, trip_count

# The operands of each comparison as upper and lower, and what is added to the upper one: a <= b is a < b + 1.
COMPARISONS: Mapping[str, tuple[int, int, int]] = {
    "LESS": (1, 0, 0),
    "LESS_EQUAL": (1, 0, 1),
    "GREATER": (0, 1, 0),
    "GREATER_EQUAL": (0, 1, 1),
}

State = Sequence[Tensor] | Sequence[FileTensor]  # the values that a WHILE takes


def known_iterations(operator: Operator, condition: Subgraph, body: Subgraph, state: State) -> int | None:
    """Return how often a WHILE goes through, where counting from known numbers to known numbers tells; else None.

    Args:
        operator: The WHILE.
        condition: The subgraph that decides.
        body: The subgraph that counts.
        state: The values that the loop takes.
    """
    bounds = bounds_of(operator, condition, body, state)
    known = bounds and all(side.tensor is None for bound in bounds for side in (bound.upper, bound.lower))
    return trip_count(bounds, {}) if known else None


def bounds_of(operator: Operator, condition: Subgraph, body: Subgraph, state: State) -> tuple[Bound, ...]:
    """Return what limits the iterations of a WHILE; empty if more than counting does.

    Args:
        operator: The WHILE.
        condition: The subgraph that decides.
        body: The subgraph that counts.
        state: The values that the loop takes.
    """
    producers = {t: o for o in condition.operators for t in o.outputs}
    tested, counted = affine_elements(condition), affine_elements(body)
    pending, bounds = [condition.outputs[0]], list[Bound]()
    while pending:
        comparison = producers.get(pending.pop())
        if comparison is None:
            return ()
        if comparison.code == "LOGICAL_AND":
            pending += comparison.inputs
            continue
        if comparison.code not in COMPARISONS:
            return ()
        upper, lower, more = COMPARISONS[comparison.code]
        sides = [_scalar(tested.get(comparison.inputs[i]), operator, condition, state) for i in (upper, lower)]
        steps = [_step(tested.get(comparison.inputs[i]), condition, body, counted) for i in (upper, lower)]
        if None in sides or None in steps:
            return ()
        (above, below), (rises, follows) = (s for s in sides if s), (s for s in steps if s is not None)
        if follows <= rises:
            return ()
        bounds.append(Bound(Scalar(above.tensor, above.offset + more), below, follows - rises))
    return tuple(bounds)


def _scalar(elements: Elements | None, operator: Operator, condition: Subgraph, state: State) -> Scalar | None:
    """Return an operand of a comparison when the loop begins, by the tensors that the WHILE takes."""
    if elements is None or len(elements) != 1:
        return None
    base, offset = elements[0]
    if base is None:
        return Scalar(None, offset)
    if base not in condition.inputs:
        return None
    position = condition.inputs.index(base)
    value = state[position]
    if value.size != 1 or value.dtype not in ("int32", "int64"):
        return None
    return (
        Scalar(operator.inputs[position], offset)
        if value.data is None
        else Scalar(None, offset + int(value.data.reshape(-1)[0]))
    )


def _step(
    elements: Elements | None, condition: Subgraph, body: Subgraph, counted: Mapping[int, Elements]
) -> int | None:
    """Return what an iteration adds to an operand of a comparison; None if that differs."""
    if elements is None or elements[0].base is None:
        return 0
    if elements[0].base not in condition.inputs:
        return None
    position = condition.inputs.index(elements[0].base)
    result = body.outputs[position]
    if result == body.inputs[position]:
        return 0
    match counted.get(result):
        case (Affine(base, offset),) if base == body.inputs[position]:
            return offset
    return None
