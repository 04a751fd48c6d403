"""A cache of keys and values that stays on the device: a token is written into it, and attention reads it in place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.targets import CPU, GPU, H200
from tflgpu.frontend.entry_point import entry_point
from tflgpu.frontend.lower import lower
from tflgpu.graph.ir import Graph, Node, State, TensorId
from tflgpu.graph.rewrite_rules import NewTensors
from tflgpu.model.reader import read_model
from tflgpu.passes import optimize
from tflgpu.plan import Plan
from tflgpu.plan.planning import make_plan
from tflgpu.target import Target


def with_caches_as_states(path: Path) -> Graph:
    """The graph of a decode step whose outputs are states, if an input has the same name."""
    model = read_model(path.read_bytes())
    lowered = lower(model, entry_point(model, "decode"))
    graph = lowered.graph
    given = {name: tensor for (name, _), tensor in zip(lowered.inputs, graph.inputs, strict=True)}
    found = {name: tensor for (name, _), tensor in zip(lowered.outputs, graph.outputs, strict=True)}
    caches = given.keys() & found.keys()
    tensors, fresh = dict(graph.tensors), NewTensors(graph).ids
    nodes, states = list(graph.nodes), list[State]()
    for name in sorted(caches):
        written = replace(graph[given[name]], id=next(fresh), precise=True)
        tensors |= {written.id: written, found[name]: replace(graph[found[name]], precise=True)}
        nodes.append(Node("map", (found[name],), written.id))
        states.append(State(name, given[name], written.id))
    left = [tuple(t for name, t in side.items() if name not in caches) for side in (given, found)]
    return optimize(Graph(tensors, tuple(nodes), *left, tuple(states)))


def readers(plan: Plan, tensor: TensorId) -> list[str]:
    """The kinds of the nodes whose kernels read the memory of a tensor."""
    root = plan.roots[tensor]
    reading = (
        k for k in plan.kernels if any(a.tensor is not None and plan.roots[a.tensor] == root for a in k.arguments)
    )
    return [k.node.kind for k in reading]


@pytest.mark.parametrize("target", [CPU, GPU, H200], ids=["cpu", "gpu", "h200"])
def test_a_cache_is_neither_copied_nor_converted(target: Target, shared: Path) -> None:
    plan = make_plan(with_caches_as_states(shared / "language" / "decoder_float.tflite"), target)
    assert len(plan.graph.states) == 4
    for state in plan.graph.states:
        assert plan.roots[state.written] == plan.roots[state.read]
        assert readers(plan, state.read) == ["overwrite", "attention"]
