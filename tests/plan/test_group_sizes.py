"""Plans for devices whose compiler allows some kernels fewer work-items than the device allows a group."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path

import pytest

from tests.support.fixed_cases import fixed_cases
from tests.support.models import Builder
from tests.support.planning import graph_of
from tests.support.targets import CPU
from tests.support.targets import H200_LAUNCHES as H200
from tflgpu.graph.ir import Graph
from tflgpu.plan import Plan, make_plan
from tflgpu.target import WHOLE_PLAN, Target

ROOT = Path(__file__).parents[2]
GPU = replace(H200, ptx=False, matrix_unit=None)
TARGETS = [H200, GPU, CPU]
SIZE = 12


def layers(*channels: int) -> Graph:
    """Convolutions of an image of three channels to so many each."""
    builder = Builder(seed=sum(channels))
    x = builder.input((1, SIZE, SIZE, 3))
    for out in channels:
        x = builder.convolution(x, out, 3)
    return graph_of(builder.finish([x]))


def keys(plan: Plan) -> list[str]:
    return [planned.key for planned in plan.kernels]


def sizes(plan: Plan) -> list[int]:
    return [planned.kernel.local_size for planned in plan.kernels]


def renumbered(graph: Graph) -> Graph:
    """The same with other tensor ids, of other operators."""
    ids = {t: 3 * t + 1000 for t in graph.tensors}
    nodes = tuple(
        replace(
            n, inputs=tuple(ids[t] for t in n.inputs), output=ids[n.output], sources=tuple(s + 7 for s in n.sources)
        )
        for n in graph.nodes
    )
    return Graph(
        {ids[t]: replace(tensor, id=ids[t]) for t, tensor in graph.tensors.items()},
        nodes,
        tuple(ids[t] for t in graph.inputs),
        tuple(ids[t] for t in graph.outputs),
        tuple(replace(s, read=ids[s.read], written=ids[s.written]) for s in graph.states),
    )


def without_repr(value: object) -> Iterator[object]:
    """The values within attributes of which the text would say too little, or something else in each process."""
    if is_dataclass(value):
        for field in fields(value):
            yield from without_repr(getattr(value, field.name))
    elif isinstance(value, tuple):
        for each in value:
            yield from without_repr(each)
    elif not (value is None or isinstance(value, str | int | float)):
        yield value


@pytest.mark.quick(when=lambda target: target is H200)
@pytest.mark.parametrize("target", TARGETS, ids=["matrix units", "gpu", "cpu"])
def test_a_key_names_no_tensors_and_no_operators(target: Target) -> None:
    for name, case in fixed_cases().items():
        graph = graph_of(case.model)
        plan, other = make_plan(graph, target), make_plan(renumbered(graph), target)
        assert keys(plan) == keys(other), name
        assert not [v for k in plan.kernels for v in without_repr(k.node.attributes)], name


def test_the_same_layer_has_the_same_key_in_two_models() -> None:
    first, second = (keys(make_plan(layers(*channels), GPU)) for channels in ((32, 16, 8), (48, 32, 16, 8)))
    assert first[-2:] == second[-2:]
    assert not {*first[:-2]} & {*second[:-2]}


def test_a_kernel_that_was_found_too_wide_gets_smaller_groups_alone() -> None:
    """And even smaller ones, if it is still too wide; equal layers with it."""
    graph = layers(16, 16, 16, 8)
    plan = make_plan(graph, GPU)
    first, second, third, last = keys(plan)
    assert set(sizes(plan)) == {128} and second == third
    target = GPU.with_group_sizes({second: 32})
    narrow = make_plan(graph, target)
    assert sizes(narrow) == [128, 32, 32, 128]
    assert keys(narrow)[0] == first and keys(narrow)[-1] == last
    narrower = make_plan(graph, target.with_group_sizes({keys(narrow)[1]: 8}))
    assert sizes(narrower) == [128, 8, 8, 128]


def test_another_tile_of_the_same_layer_has_another_key() -> None:
    """A compiler may allow one of them larger groups than the other: a tuner measures both."""
    graph = layers(16, 8)
    first, other = make_plan(graph, GPU), make_plan(graph, GPU, lambda _, ranked: ranked[-1])
    assert not {*keys(first)[1:]} & {*keys(other)[1:]}
    narrow = GPU.with_group_sizes(dict.fromkeys(keys(other), 16))
    assert sizes(make_plan(graph, narrow)) == sizes(first)


def test_one_kernel_for_all_has_one_size() -> None:
    """Launches are kernels of their own."""
    graph, target = layers(16, 8), GPU.with_group_sizes({WHOLE_PLAN: 64})
    assert set(sizes(make_plan(graph, target))) == {128}
    assert set(sizes(make_plan(graph, replace(target, executor="persistent")))) == {64}


def test_planning_anew_renders_nothing() -> None:
    code = """
import sys
import numpy as np
from tflgpu.frontend.lower import lower
from tflgpu.model.reader import read_model
from tflgpu.model.writer import ModelBuilder
from tflgpu.passes import optimize
from tflgpu.plan import make_plan
from tflgpu.target import Target

builder = ModelBuilder()
x, y = builder.input((1, 8, 8, 4)), builder.tensor((1, 8, 8, 16))
weights = builder.constant(np.ones((16, 3, 3, 4), np.float32))
builder.op("CONV_2D", [x, weights], [y], {"padding": "SAME", "stride_h": 1, "stride_w": 1})
graph = optimize(lower(read_model(builder.finish([y]))).graph)
target = Target(family="gpu", compute_units=4, storage="float")
key = make_plan(graph, target).kernels[-1].key
narrow = make_plan(graph, target.with_group_sizes({key: 8}))
assert narrow.kernels[-1].kernel.local_size == 8
assert not [name for name in sys.modules if name.startswith(("tflgpu.codegen", "jinja2"))]
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
