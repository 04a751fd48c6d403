"""The memory of states: their next value is computed where their last one lies, and copied only where it must be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tflgpu.graph.ir import Graph, State, TensorId
from tflgpu.plan.boundary import roots
from tflgpu.plan.overwriting import overwritable
from tflgpu.plan.plan import PlannedKernel


def with_short_states(graph: Graph) -> Graph:
    """The same graph with fewer kernels for states, and with fewer of them that cannot be written in place."""
    return _writing_late(_without_copies(graph))


def _without_copies(graph: Graph) -> Graph:
    """Without maps that do nothing but copy an inner tensor to a state's next value."""
    copies: dict[TensorId, TensorId] = {}
    taken = {*graph.given, *graph.wanted}
    for state in graph.states:
        node = graph.producer[state.written]
        source = node.inputs[0]
        producer = graph.producer.get(source)
        is_computed = producer is not None and producer.kind != "view" and source not in taken
        alike = replace(graph[source], id=0, name="") == replace(graph[state.written], id=0, name="")
        if node.kind == "map" and not node.epilogue and alike and is_computed:
            copies[state.written] = source
            taken.add(source)
    states = tuple(replace(s, written=copies.get(s.written, s.written)) for s in graph.states)
    return replace(graph, states=states).with_nodes(n for n in graph.nodes if n.output not in copies)


def _writing_late(graph: Graph) -> Graph:
    """With next values that no node needs behind all that reads the last ones: a counter counts at the end."""
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


def written_in_place(
    graph: Graph, kernels: Sequence[PlannedKernel], root: Mapping[TensorId, TensorId]
) -> dict[TensorId, TensorId]:
    """The states' next values that a kernel may store over the last ones, which it then has for its root."""
    return {s.written: s.read for s in graph.states if _can_overwrite(s, kernels, root)}


def _can_overwrite(state: State, kernels: Sequence[PlannedKernel], root: Mapping[TensorId, TensorId]) -> bool:
    """Whether the kernel that computes a state's next value may store it over the last one."""
    written = next(time for time, k in enumerate(kernels) if k.node.output == state.written)

    def used(k: PlannedKernel) -> set[TensorId]:
        return {root[a.tensor] for a in k.arguments if a.tensor is not None}

    if any(state.read in used(later) for later in kernels[written + 1 :]):
        return False
    return state.read not in used(kernels[written]) or state.read in overwritable(kernels[written], root)
