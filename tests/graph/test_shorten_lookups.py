"""Lookups in lists of indices read the indices themselves."""

from __future__ import annotations

import pytest

from tests.graph.model import apply, kinds
from tests.support.models import Builder
from tflgpu.frontend.lower import lower
from tflgpu.graph.ir import Graph, remove_dead
from tflgpu.model.reader import read_model
from tflgpu.ops.movement.indexing import Gather, Lookup


def update(*, nested: bool, kept: bool) -> Graph:
    """A row is replaced, at a place that is put into a list of starts. kept: the list is an output, too."""
    builder = Builder()
    x, row, i = builder.input((4, 3, 5)), builder.input((1, 2, 5)), builder.input((1,), "int32")
    if nested:
        pair = builder.add("CONCATENATION", [builder.ints([7]), i], (2,), "int32", axis=0)
        starts = builder.add("CONCATENATION", [pair, builder.ints([0])], (3,), "int32", axis=0)
    else:
        starts = builder.add("CONCATENATION", [i, i, builder.ints([0])], (3,), "int32", axis=0)
    new = builder.add("DYNAMIC_UPDATE_SLICE", [x, row, starts], (4, 3, 5))
    return remove_dead(lower(read_model(builder.finish([new, starts] if kept else [new]))).graph)


@pytest.mark.parametrize(("nested", "lookups", "start"), [(False, 2, 0), (True, 1, -3)])
def test_constants_in_a_list_become_numbers(nested: bool, lookups: int, start: int) -> None:
    """A constant that is too large is clamped as the kernel would clamp it."""
    graph = apply("shorten_lookups", update(nested=nested, kept=False))
    (node,) = graph.nodes
    assert isinstance(node.attributes, Gather)
    terms = [t for p in node.attributes.positions for t in p.terms]
    assert sum(isinstance(t, Lookup) for t in terms) == lookups and node.attributes.positions[0].start == start


def test_a_list_that_is_wanted_stays() -> None:
    graph = apply("shorten_lookups", update(nested=True, kept=True))
    assert kinds(graph) == {"gather": 1, "concatenate": 2}
