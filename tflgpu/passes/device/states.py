"""The memory of states: their next value is computed where their last one lies, and copied only where it must be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tflgpu.graph.ir import Graph, TensorId, roots
from tflgpu.graph.layout import Shape
from tflgpu.kernels.rewriting import Planning
from tflgpu.ops.movement.indexing import Digit, Gather, Lookup, Position, follow


def shorten_states(planning: Planning) -> Planning:
    """Need fewer kernels for states, and have fewer states that cannot be written in place."""
    return replace(planning, graph=_writing_late(_without_copies(planning.graph)))


def _without_copies(graph: Graph) -> Graph:
    """Without maps that do nothing but copy an inner tensor to a state's next value."""
    copies: dict[TensorId, TensorId] = {}
    taken = {*graph.given, *graph.wanted}
    for state in graph.states:
        if state.written == state.read:
            continue
        node = graph.producer[state.written]
        source = node.inputs[0]
        producer = graph.producer.get(source)
        is_computed = producer is not None and not producer.is_view and source not in taken
        alike = replace(graph[source], id=0, name="") == replace(graph[state.written], id=0, name="")
        if node.kind == "map" and not node.epilogue and alike and is_computed:
            copies[state.written] = source
            taken.add(source)
    states = tuple(replace(s, written=copies.get(s.written, s.written)) for s in graph.states)
    return replace(graph, states=states).with_replaced(dict.fromkeys(copies, ()))


def _writing_late(graph: Graph) -> Graph:
    """Move next values that no node needs after all that reads the last ones: a counter counts at the end."""
    read_of = {s.written: s.read for s in graph.states if s.written not in graph.consumers}
    late = [node for node in graph.nodes if node.output in read_of]
    rest = [node for node in graph.nodes if node.output not in read_of]
    root = roots(graph)
    while late:
        used = [{root.get(t) for t in node.inputs} for node in late]
        free = (
            i
            for i, node in enumerate(late)
            if not any(read_of[node.output] in tensors for k, tensors in enumerate(used) if k != i)
        )
        rest.append(late.pop(next(free, 0)))
    return graph.with_nodes(rest)


def overwrite_states(planning: Planning) -> Planning:
    """Put an ``overwrite`` node for each gather that only puts new elements into a state's last value.

    Its kernel touches no others, so that its output has to lie where the last value does.
    """
    graph = planning.graph
    root, nodes = roots(graph), list(graph.nodes)
    for state in graph.states:
        if state.written == state.read:
            continue
        time, node = next((time, n) for time, n in enumerate(nodes) if n.output == state.written)
        attributes = node.attributes
        if node.epilogue or not isinstance(attributes, Gather) or attributes.background is None:
            continue
        others = [t for i, t in enumerate(node.inputs) if i != attributes.background]
        used = {root.get(t) for t in (*others, *(t for later in nodes[time + 1 :] for t in later.inputs))}
        if node.inputs[attributes.background] != state.read or state.read in used:
            continue
        positions = tuple(_without_input(p, attributes.background) for p in attributes.positions)
        if _moves_vec4s(positions, graph[others[0]].shape, graph[node.output].shape):
            nodes[time] = replace(node, kind="overwrite", inputs=tuple(others), attributes=Gather(positions))
    return planning.with_graph(graph.with_nodes(nodes))


def _moves_vec4s(positions: Sequence[Position], new: Shape, whole: Shape) -> bool:
    """Whether a kernel that moves vec4s can put new elements where ``positions`` of the whole ask for them."""
    keeps_channels = bool(new) and positions[-1] == follow(len(new) - 1) and new[-1] == whole[-1]
    return keeps_channels and all(_is_shifted(position, axis) for axis, position in enumerate(positions))


def _without_input(position: Position, number: int) -> Position:
    """Return the same position in a node that lacks one of the inputs."""
    terms = (replace(t, input=t.input - (t.input > number)) if isinstance(t, Lookup) else t for t in position.terms)
    return replace(position, terms=tuple(terms))


def _is_shifted(position: Position, axis: int) -> bool:
    """Whether a position is the output's coordinate along ``axis`` less a number, the same for all elements."""
    lookups = [t for t in position.terms if isinstance(t, Lookup)]
    own = [t for t in position.terms if t not in lookups]
    return own == [Digit(axis)] and all(
        t.step == -1 and t.limit is not None and all(m.axis is None for m in t.places) for t in lookups
    )
