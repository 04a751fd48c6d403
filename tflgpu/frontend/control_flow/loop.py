"""WHILE: unrolled where constants and shapes decide, else as a body, or as several parts, that run again and again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from tflgpu.frontend.control_flow.callee import Callee, Separate, loop_subgraphs
from tflgpu.frontend.control_flow.counting import bounds_of, known_iterations, with_row_updates
from tflgpu.frontend.control_flow.pieces import (
    BodyPart,
    Constant,
    Loop,
    LoweredPiece,
    PartedLoop,
    piece_of,
    place_inputs,
    with_read_inputs,
)
from tflgpu.graph.ir import Array, Graph, State, Tensor, TensorId, remove_dead
from tflgpu.graph.layout import Shape
from tflgpu.model.model import Model, Operator, Subgraph
from tflgpu.model.tensor_info import TensorIndex

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


def lower_loop(
    operator: Operator, state: Sequence[Tensor], model: Model, separate: Separate, wanted: Collection[TensorIndex]
) -> Loop | str:
    """Return the loop of a WHILE; or why the device cannot run it.

    Args:
        operator: The WHILE.
        state: The values that it takes.
        model: Has the subgraphs.
        separate: Gives a subgraph in a graph of its own.
        wanted: Tensors of the file that something reads, or that are outputs.

    Raises:
        ModelError: A subgraph is not there.
    """
    numbers = loop_subgraphs(operator, model, state)
    if isinstance(numbers, str):
        return numbers
    condition, body = model.subgraphs[numbers[0]], with_row_updates(model.subgraphs[numbers[1]])
    bounds = bounds_of(operator, condition, body, state)
    lowered = _lower_body(operator, body, condition if not bounds else None, state, separate, wanted)
    if isinstance(lowered, str):
        return lowered
    piece, positions = lowered
    first = None if bounds else lower_condition(operator, condition, operator.inputs, state, separate)
    if isinstance(first, str):
        return first
    same = [p for p in range(len(state)) if body.outputs[p] == body.inputs[p]]
    return Loop(
        piece,
        first,
        bounds,
        tuple(None if state[p].is_constant else operator.inputs[p] for p in positions),
        tuple(operator.outputs[p] for p in positions),
        {operator.outputs[p]: operator.inputs[p] for p in same if not state[p].is_constant},
        tuple(Constant(operator.outputs[p], data) for p in same if (data := state[p].data) is not None),
        tuple(value.shape for value in state),
    )


def lower_condition(
    operator: Operator, condition: Subgraph, names: Sequence[TensorIndex], state: Sequence[Tensor], separate: Separate
) -> LoweredPiece | str:
    """Return the condition of a WHILE as a piece of its own, or an obstacle.

    Args:
        operator: The WHILE.
        condition: The subgraph that decides.
        names: Tensors of the file for the values of ``state``.
        state: The inputs of the condition.
        separate: Gives a subgraph in a graph of its own.
    """
    test = separate(condition, None)
    placed = place_inputs(test, state)
    again = _again(operator, test, placed)
    if isinstance(again, str):
        return f"in its condition, {again}"
    return piece_of(operator, test, {t.id: names[p] for p, t in enumerate(placed) if not t.is_constant}, [again])


def _lower_body(
    operator: Operator,
    body: Subgraph,
    condition: Subgraph | None,
    state: Sequence[Tensor],
    separate: Separate,
    wanted: Collection[TensorIndex],
) -> tuple[LoweredPiece, list[int]] | str:
    """One iteration, and the positions of its states among the values of the WHILE; or an obstacle.

    condition: if given, it says of the new values whether another iteration follows.
    """
    step = separate(body, None)
    graph = step.graph
    graph.caller = operator.index
    changed = [p for p in range(len(state)) if body.outputs[p] != body.inputs[p]]
    # Rounding to half precision in every iteration would add up.
    values = [replace(v, data=None, precise=True) if p in changed else v for p, v in enumerate(state)]
    placed = place_inputs(step, values)
    results = step.call(placed)
    if isinstance(results, str):
        return f"in its body, {results}"
    for position in changed:
        old, new = state[position], results[position]
        if (old.shape, old.dtype) != (new.shape, new.dtype):
            given, made = (f"{t.dtype} of shape {list(t.shape)}" for t in (old, new))
            return f"its body makes value {position}, {given}, {made}"
    again: list[Tensor] = []
    if condition is not None:
        found = _again(operator, separate(condition, graph), results)
        if isinstance(found, str):
            return f"in its condition, {found}"
        again = [graph.add_map(found, replace(found, id=next(graph.ids), data=None), operator=operator.index)]
    states: dict[TensorId, int] = {}
    for position in changed:
        state_of, value = placed[position], results[position]
        graph.tensors[value.id] = replace(graph.tensors[value.id], precise=True)
        written = graph.add_map(value, replace(state_of, id=next(graph.ids)), operator=operator.index)
        states[written.id] = position
    inputs = {t.id: operator.inputs[p] for p, t in enumerate(placed) if p not in changed and not t.is_constant}
    whole = Graph(
        graph.tensors,
        tuple(graph.nodes),
        tuple(inputs),
        tuple(t.id for t in again),
        tuple(State("", placed[p].id, written, _initial(state[p])) for written, p in states.items()),
    )
    whole = _with_needed_states(whole, {w for w, p in states.items() if operator.outputs[p] in wanted})
    piece = with_read_inputs(whole, inputs)
    return piece, [states[s.written] for s in piece.graph.states]


def _initial(value: Tensor) -> Array | None:
    """Return the first value of a state if it is known; None for zeros."""
    data = value.data
    return data if data is not None and any(data.tobytes()) else None


def _again(operator: Operator, test: Callee, results: Sequence[Tensor]) -> Tensor | str:
    test.graph.caller = operator.index
    found = test.call(results)
    if isinstance(found, str):
        return found
    (again,) = found
    if again.size != 1 or again.dtype != "bool":
        return f"it gives {again.dtype} of shape {list(again.shape)}; one boolean was expected"
    return again


def _with_needed_states(graph: Graph, needed: set[TensorId]) -> Graph:
    """Without the states that neither an output nor a needed state follows from, such as a second counter.

    needed: what the states are told by that are wanted after the loop.
    """
    while True:
        kept = replace(graph, states=tuple(s for s in graph.states if s.written in needed))
        kept = remove_dead(kept)
        more = {s.written for s in graph.states if s.read in kept.consumers} - needed
        if not more:
            return kept
        needed = needed | more


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
