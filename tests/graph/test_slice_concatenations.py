"""Slices of concatenations read the inputs of these, where whole inputs or constants do."""

from __future__ import annotations

from tests.graph.model import Model, apply, kinds
from tflgpu.passes import optimize
from tflgpu.passes.slice_concatenations import MAX_INPUTS


def concatenate(m: Model, *tensors: int) -> int:
    rows = sum(m.shape(t)[0] for t in tensors)
    return m.add("CONCATENATION", list(tensors), (rows, *m.shape(tensors[0])[1:]), axis=0)


def rows(m: Model, x: int, begin: int, count: int) -> int:
    start, size = m.ints([begin, 0, 0]), m.ints([count, *m.shape(x)[1:]])
    return m.add("SLICE", [x, start, size], (count, *m.shape(x)[1:]))


def test_a_list_that_is_filled_row_by_row_is_one_concatenation() -> None:
    """Also if it has more rows than a kernel can have inputs."""
    m, count = Model(), MAX_INPUTS + 3
    items = [m.add("TANH", [m.input((1, 2, 5))]) for _ in range(count)]
    table = concatenate(m, items[0], m.weights(count - 1, 2, 5))
    for i in range(1, count):
        parts = [rows(m, table, 0, i), items[i]]
        table = concatenate(m, *parts, *([rows(m, table, i + 1, count - i - 1)] if i + 1 < count else []))
    graph = apply("slice_concatenations", m.graph(table))
    assert kinds(graph) == {"map": count, "concatenate": 3}


def test_a_slice_that_is_an_input_is_that_input() -> None:
    m = Model()
    x, y = m.input((2, 3, 5)), m.input((4, 3, 5))
    graph = apply("slice_concatenations", m.graph(m.add("TANH", [rows(m, concatenate(m, x, y), 2, 4)])))
    assert kinds(graph) == {"map": 1}


def test_parts_of_constants_are_constants() -> None:
    m = Model()
    x, y = m.input((2, 3, 5)), m.input((1, 3, 5))
    graph = apply(
        "slice_concatenations", m.graph(concatenate(m, rows(m, concatenate(m, x, m.weights(4, 3, 5)), 0, 5), y))
    )
    (node,) = graph.nodes
    assert [graph[t].shape[0] for t in node.inputs] == [2, 3, 1]


def test_a_slice_of_several_parts_is_none_of_them() -> None:
    """Also if the first one is a part of a constant that has the shape of the slice."""
    m = Model()
    table = concatenate(m, m.weights(4, 3, 5), m.input((2, 3, 5)))
    graph = apply("slice_concatenations", m.graph(concatenate(m, rows(m, table, 2, 4), m.input((1, 3, 5)))))
    (node,) = graph.nodes
    assert [graph[t].shape[0] for t in node.inputs] == [2, 2, 1]


def test_a_part_of_an_input_stays_a_slice() -> None:
    m = Model()
    x, y = m.input((2, 3, 5)), m.input((4, 3, 5))
    graph = apply("slice_concatenations", m.graph(concatenate(m, rows(m, concatenate(m, x, y), 1, 4), y)))
    assert kinds(graph) == {"concatenate": 2, "rearrange": 1}


def test_an_output_is_no_alias() -> None:
    m = Model()
    x, y = m.input((2, 3, 5)), m.input((4, 3, 5))
    graph = apply("slice_concatenations", m.graph(rows(m, concatenate(m, x, y), 0, 2)))
    assert len(graph.outputs) == 1 and graph.outputs[0] in graph.producer


def test_a_slice_of_constant_parts_is_folded_behind() -> None:
    """Else a view of it would be of a constant, which has no place in memory."""
    m = Model()
    table = concatenate(m, m.weights(2, 3, 5), m.input((1, 3, 5)))
    part = m.add("RESHAPE", [rows(m, table, 0, 2)], (1, 2, 3, 5), new_shape=[1, 2, 3, 5])
    graph = optimize(m.graph(m.add("TANH", [m.add("ADD", [part, m.input((1, 2, 3, 5))])])))
    assert kinds(graph) == {"map": 1}
