"""WHILE loops with loops or branches in their bodies that only a run decides: the body is several parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tflgpu.frontend.control_flow.callee import Separate, loop_subgraphs
from tflgpu.frontend.control_flow.loop import lower_condition
from tflgpu.frontend.control_flow.pieces import (
    BodyPart,
    Constant,
    PartedLoop,
)
from tflgpu.graph.ir import Tensor
from tflgpu.graph.layout import Shape
from tflgpu.model.model import Model, Operator
from tflgpu.model.tensor_info import TensorIndex

# Lowers a subgraph as parts of their own, for these values of its inputs, and for these outputs; or says why it cannot.
# Also gives the shapes and element types of the outputs.
LowerParts = Callable[
    [Operator, int, Mapping[TensorIndex, Tensor], Sequence[TensorIndex]],
    "tuple[tuple[BodyPart, ...], list[tuple[Shape, str]]] | str",
]


def lower_parted_loop(
    operator: Operator, state: Sequence[Tensor], model: Model, separate: Separate, lower_parts: LowerParts
) -> PartedLoop | str:
    """Return the loop of a WHILE with a body of several parts; or why the device cannot run it.

    Args:
        operator: The WHILE.
        state: The values that it takes.
        model: Has the subgraphs.
        separate: Gives a subgraph in a graph of its own.
        lower_parts: Lowers a subgraph that has loops and branches of its own.

    Raises:
        ModelError: A subgraph is not there.
    """
    numbers = loop_subgraphs(operator, model, state)
    if isinstance(numbers, str):
        return numbers
    condition, body = (model.subgraphs[number] for number in numbers)
    changed = [p for p in range(len(state)) if body.outputs[p] != body.inputs[p]]
    values = [replace(v, data=None) if p in changed else v for p, v in enumerate(state)]
    test = lower_condition(operator, condition, body.inputs, values, separate)  # of which no two values share a name
    if isinstance(test, str):
        return test
    outputs = [t for t in dict.fromkeys(body.outputs) if t not in body.inputs]
    found = lower_parts(operator, numbers[1], dict(zip(body.inputs, values, strict=True)), outputs)
    if isinstance(found, str):
        return f"in its body, {found}"
    parts, forms = found
    made = dict(zip(outputs, forms, strict=True)) | {
        t: (v.shape, v.dtype) for t, v in zip(body.inputs, values, strict=True)
    }
    for position, (value, tensor) in enumerate(zip(values, body.outputs, strict=True)):
        if made[tensor] != (value.shape, value.dtype):
            return f"its body makes value {position} of another shape or element type"
    return PartedLoop(
        test,
        parts,
        body.inputs,
        body.outputs,
        tuple(None if v.is_constant else t for t, v in zip(operator.inputs, state, strict=True)),
        tuple(Constant(t, v.data) for t, v in zip(body.inputs, state, strict=True) if v.data is not None),
        tuple(operator.outputs),
        tuple(value.shape for value in state),
    )
