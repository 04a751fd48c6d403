"""WHILE loops that data end, or that go through too often to be unrolled, as a body that runs again and again."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from tflgpu.frontend.control_flow.callee import Callee, Separate, loop_subgraphs
from tflgpu.frontend.control_flow.counting import bounds_of
from tflgpu.frontend.control_flow.pieces import Constant, Loop, LoweredPiece, piece_of, place_inputs, with_read_inputs
from tflgpu.frontend.control_flow.row_updates import with_row_updates
from tflgpu.graph.ir import Array, Graph, State, Tensor, TensorId, remove_dead
from tflgpu.model.model import Model, Operator, Subgraph
from tflgpu.model.tensor_info import TensorIndex


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
