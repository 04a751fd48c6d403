"""Transposes meet and disappear, and change no result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.graph.model import CHANNELS_FIRST, CHANNELS_LAST, IMAGE, Model, apply, kinds, rewritten
from tflgpu.graph.ir import Graph, remove_dead, verify
from tflgpu.ops.evaluate import value_of
from tflgpu.ops.movement.shaping import Rearrange


def assert_channels_last(graph: Graph, expected: dict[str, int]) -> None:
    """That sinking leaves these nodes alone, and no axis in another place than before the first transpose."""
    sunk = apply("sink_transposes", graph)
    assert kinds(sunk) == expected
    for node in sunk.nodes:
        if isinstance(node.attributes, Rearrange):
            assert [m.axis for m in node.attributes.axes] == [0, 1, 2, 3]


def test_transposes_meet_past_elementwise_functions() -> None:
    m = Model()
    x = m.transpose(m.conv(m.input(IMAGE)), CHANNELS_FIRST)
    y = m.add("MUL", [x, m.add("LOGISTIC", [x])])
    y = m.add("ADD", [m.add("MUL", [y, m.weights(7, 1, 1)]), m.add("ABS", [m.weights(1)])])
    assert_channels_last(m.graph(m.conv(m.transpose(y, CHANNELS_LAST))), {"convolution": 2, "map": 4})


def test_transposes_meet_past_padding_and_slices() -> None:
    m = Model()
    x = m.pad(m.transpose(m.conv(m.input(IMAGE)), CHANNELS_FIRST), [(0, 0), (0, 1), (2, 0), (1, 3)])
    begin, end, strides = m.ints([0, 1, 0, 4]), m.ints([1, 8, 8, 0]), m.ints([1, 2, 1, -1])
    y = m.add("STRIDED_SLICE", [x, begin, end, strides], (1, 4, 8, 4))
    graph = m.graph(m.conv(m.transpose(y, CHANNELS_LAST)))
    assert_channels_last(graph, {"convolution": 2, "rearrange": 2})


def test_transposes_meet_past_concatenations_and_reductions() -> None:
    m = Model()
    x, y = (m.transpose(m.conv(m.input(IMAGE), out=out), CHANNELS_FIRST) for out in (3, 6))
    both = m.add("CONCATENATION", [x, y], (1, 9, 6, 5), axis=1)
    mean = m.add("MEAN", [both, m.ints([3])], (1, 9, 6, 1), keep_dims=True)
    graph = m.graph(m.conv(m.transpose(mean, CHANNELS_LAST)))
    assert_channels_last(graph, {"convolution": 3, "concatenate": 1, "reduce": 1})


def test_a_transpose_that_meets_no_other_is_done_once() -> None:
    m = Model()
    x = m.transpose(m.transpose(m.input(IMAGE), (3, 0, 2, 1)), (1, 0, 2, 3))
    graph = apply("sink_transposes", m.graph(m.add("ABS", [x])))
    assert kinds(graph) == {"rearrange": 1, "map": 1}
    assert graph.nodes[-1].kind == "rearrange"


def test_a_transposed_output_is_written() -> None:
    m = Model()
    x = m.transpose(m.conv(m.input(IMAGE)), CHANNELS_FIRST)
    back = m.transpose(x, CHANNELS_LAST)
    graph = apply("sink_transposes", m.graph(x, m.add("ABS", [back]), m.add("NEG", [m.add("EXP", [x])])))
    assert kinds(graph) == {"convolution": 1, "map": 3, "rearrange": 2}
    graph = apply("sink_transposes", m.graph(back, m.transpose(back, CHANNELS_FIRST)))
    assert kinds(graph) == {"convolution": 1, "rearrange": 1, "reshape": 1}


def moving_network(seed: int) -> Graph:
    """Elementwise functions, padding, slices and concatenations among transposes at random."""
    m, rng = Model(), np.random.default_rng(seed)
    tensors = [m.transpose(m.add("ABS", [m.input((1, 2, 3, 4))]), rng.permutation(4).tolist()) for _ in range(2)]
    for _ in range(12):
        x = tensors[rng.integers(len(tensors))]
        shape = m.shape(x)
        same = [t for t in tensors if m.shape(t) == shape]
        match rng.integers(6):
            case 0 | 1:
                x = m.transpose(x, rng.permutation(4).tolist())
            case 2:
                x = m.add("SUB", [x, same[rng.integers(len(same))]])
            case 3:
                kept = tuple(d if rng.integers(2) else 1 for d in shape)[rng.integers(4) :]
                x = m.add("MUL", [m.weights(*kept), x], shape)
            case 4:
                x = m.pad(x, [(int(a), int(b)) for a, b in rng.integers(2, size=(4, 2))])
            case 5:
                axis, other = int(rng.integers(4)), same[rng.integers(len(same))]
                joint = tuple(2 * d if i == axis else d for i, d in enumerate(shape))
                x = m.add("CONCATENATION", [x, other], joint, axis=axis)
        if np.prod(m.shape(x)) < 10_000:
            tensors.append(x)
    return m.graph(*dict.fromkeys(tensors[-3:]))


def evaluated(graph: Graph) -> list[NDArray[np.generic]]:
    """The outputs that numpy computes for a graph that only computes elementwise and moves data."""
    rng = np.random.default_rng(0)
    tensors = dict(graph.tensors)
    for t in graph.inputs:
        tensors[t] = replace(tensors[t], data=rng.standard_normal(tensors[t].shape).astype(np.float32))
    for node in graph.nodes:
        value = value_of(node, [tensors[t] for t in node.inputs], tensors[node.output])
        assert value is not None
        tensors[node.output] = replace(tensors[node.output], data=value)
    return [data for t in graph.outputs if (data := tensors[t].data) is not None]


def test_sinking_transposes_changes_no_element() -> None:
    shorter = 0
    for seed in range(200):
        graph = moving_network(seed)
        sunk = remove_dead(rewritten("sink_transposes", graph))
        verify(sunk)
        shorter += len(sunk.nodes) < len(graph.nodes)
        for expected, got in zip(evaluated(graph), evaluated(sunk), strict=True):
            np.testing.assert_array_equal(got, expected)
    assert shorter > 50


def test_transposes_meet_past_reshapes_that_split_and_join_axes() -> None:
    m = Model()
    tokens = m.conv(m.add("RESHAPE", [m.input((1, 6, 5, 7))], (1, 1, 30, 7), new_shape=[1, 1, 30, 7]))
    rows = m.add("RESHAPE", [tokens], (1, 30, 7), new_shape=[1, 30, 7])
    x = m.add("RESHAPE", [m.transpose(rows, (0, 2, 1))], (1, 7, 6, 5), new_shape=[1, 7, 6, 5])
    y = m.add("ADD", [x, m.transpose(m.conv(m.transpose(x, CHANNELS_LAST)), CHANNELS_FIRST)])
    back = m.transpose(m.add("RESHAPE", [y], (1, 7, 30), new_shape=[1, 7, 30]), (0, 2, 1))
    graph = apply("sink_transposes", m.graph(back))
    assert "rearrange" not in kinds(graph)


def test_a_number_without_axes_is_transposed_and_reshaped() -> None:
    """Found by a drawn network."""
    m = Model()
    row = m.add("RESHAPE", [m.transpose(m.add("ABS", [m.input(())]), ())], (1, 1), new_shape=[1, 1])
    graph = rewritten("sink_transposes", m.graph(m.add("EXP", [row])))
    assert kinds(graph)["map"] == 2


@pytest.mark.parametrize("rank", [3, 4])
def test_the_other_operand_is_transposed_where_that_undoes_the_transpose_of_a_sum(rank: int) -> None:
    m = Model()
    x = m.transpose(m.conv(m.input(IMAGE)), (0, 2, 1, 3))
    other = m.add("NEG", [m.input((1, 5, 6, 7)[4 - rank :])])
    graph = apply("sink_transposes", m.graph(m.conv(m.transpose(m.add("ADD", [x, other]), (0, 2, 1, 3)))))
    assert kinds(graph) == {"convolution": 2, "map": 2, "rearrange": 1}


def padded_image(m: Model, x: int) -> int:
    """The kernel of the window can pad."""
    y = m.transpose(m.add("SOFTMAX", [m.transpose(x, CHANNELS_FIRST)], beta=1.0), CHANNELS_LAST)
    return m.conv(m.pad(y, [(0, 0), (1, 1), (1, 1), (0, 0)]), kernel=3)


def plain_operand(m: Model, x: int) -> int:
    return m.add("ADD", [m.transpose(x, (0, 2, 1, 3)), m.input((1, 5, 6, 7))])


def other_axes(m: Model, x: int) -> int:
    """Softmax is over the last axis, whichever that is."""
    return m.transpose(m.add("SOFTMAX", [m.transpose(x, CHANNELS_FIRST)], beta=1.0), CHANNELS_LAST)


def two_readers(m: Model, x: int) -> int:
    """Each would need a transpose of its own."""
    y = m.transpose(x, CHANNELS_FIRST)
    return m.add(
        "SUB", [m.add("SOFTMAX", [m.add("ABS", [y])], beta=1.0), m.add("SOFTMAX", [m.add("EXP", [y])], beta=1.0)]
    )


@pytest.mark.parametrize("build_graph", [plain_operand, other_axes, two_readers, padded_image])
def test_transposes_stay_where_they_are_needed(build_graph: Callable[[Model, int], int]) -> None:
    m = Model()
    graph = m.graph(build_graph(m, m.conv(m.input(IMAGE))))
    assert rewritten("sink_transposes", graph) is graph
