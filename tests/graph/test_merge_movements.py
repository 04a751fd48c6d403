"""Reshapes, transposes and slices in a row become one node or none, and no result changes."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from tests.graph.model import Model, apply, kinds, rewritten, run
from tflgpu.graph.ir import Graph
from tflgpu.ops.evaluate import value_of
from tflgpu.passes import optimize


class Chain(Model):
    """A model whose operators move elements."""

    def reshape(self, x: int, *shape: int) -> int:
        return self.add("RESHAPE", [x], shape, new_shape=list(shape))

    def cut(self, x: int, begin: tuple[int, ...], end: tuple[int, ...], step: tuple[int, ...]) -> int:
        options = {"begin_mask": 0, "end_mask": 0}
        shape = tuple(len(range(b, e, s)) for b, e, s in zip(begin, end, step, strict=True))
        return self.add("STRIDED_SLICE", [x, *map(self.ints, (begin, end, step))], shape, **options)

    def layer(self, x: int, out: int) -> int:
        rows, depth = self.shape(x)
        return self.add("FULLY_CONNECTED", [x, self.weights(out, depth), self.weights(out)], (rows, out))


def random_chain(m: Chain, x: int, rng: np.random.Generator) -> int:
    """Four to eight movements of any kind."""
    for _ in range(rng.integers(4, 9)):
        shape = m.shape(x)
        match rng.integers(3):
            case 0:
                x = m.reshape(x, *random_shape(prod(shape), rng))
            case 1:
                x = m.transpose(x, [int(axis) for axis in rng.permutation(len(shape))])
            case _:
                begin = tuple(int(rng.integers(0, size)) if rng.random() < 0.3 else 0 for size in shape)
                x = m.cut(x, begin, shape, tuple(int(rng.choice([1, 1, 1, 2])) for _ in shape))
    return x


def random_shape(size: int, rng: np.random.Generator) -> list[int]:
    """Up to five axes."""
    shape = [size]
    for _ in range(rng.integers(1, 5)):
        divisors = [d for d in range(1, shape[-1] + 1) if shape[-1] % d == 0]
        divisor = int(rng.choice(divisors))
        shape[-1:] = [shape[-1] // divisor, divisor]
    return shape


@pytest.mark.device
@pytest.mark.quick(when=lambda seed: seed < 2)
@pytest.mark.parametrize("seed", range(12))
def test_movements_in_a_row_become_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    m = Chain()
    x = m.conv(m.input((1, 6, 4, 7)), out=8)
    y = random_chain(m, x, rng)
    graph = m.graph(m.add("EXP", [y]), random_chain(m, y, rng))
    merged = apply("merge_movements", graph)
    assert sum(node.kind in ("rearrange", "reshape", "strided") for node in merged.nodes) <= 6


@pytest.mark.parametrize("seed", range(40))
def test_strides_tell_what_moves(seed: int) -> None:
    """By the values in numpy, of many more chains than run on a device."""
    m = Chain()
    graph = m.graph(random_chain(m, m.input((2, 3, 4, 5)), np.random.default_rng(seed)))
    x = np.arange(120, dtype=np.float32).reshape(2, 3, 4, 5)
    np.testing.assert_array_equal(moved(graph, x), moved(rewritten("merge_movements", graph), x))


def moved(graph: Graph, x: np.ndarray) -> np.ndarray:
    values = {graph.inputs[0]: x}
    for node in graph.nodes:
        tensor = graph[node.inputs[0]]
        given = type(tensor)(tensor.id, "", tensor.shape, data=values[tensor.id])
        value = value_of(node, [given], graph[node.output])
        assert value is not None
        values[node.output] = value
    return values[graph.outputs[0]]


@pytest.mark.device
def test_what_works_on_rows_works_on_those_of_the_matrix_before_it() -> None:
    """Sums of two images of one matrix, whose reshapes would be two copies."""
    m = Chain()
    x = m.layer(m.input((60, 7)), 12)
    images = [m.reshape(m.add("EXP", [x]), 1, 60, 12), m.reshape(x, 1, 60, 12)]
    y = m.add("SOFTMAX", [m.add("MUL", [m.add("ADD", images), m.weights(1, 1, 12)])], beta=1.0)
    graph = m.graph(m.layer(m.reshape(y, 60, 12), 5))
    assert kinds(apply("merge_movements", graph)) == {"fully_connected": 2, "map": 3, "softmax": 1}


@pytest.mark.device
def test_a_number_for_each_row_goes_with_them() -> None:
    m = Chain()
    x, y = m.layer(m.input((30, 7)), 8), m.layer(m.input((30, 3)), 1)
    z = m.add("MUL", [m.reshape(x, 3, 10, 8), m.reshape(y, 3, 10, 1)])
    graph = apply("merge_movements", m.graph(m.layer(m.reshape(z, 30, 8), 4)))
    assert kinds(graph) == {"fully_connected": 3, "map": 1}


def block(m: Chain, x: int, *, rank: int) -> int:
    """A residual block of two layers, whose sum has an axis of size 1 more than the layers' rows."""
    rows, channels = m.shape(x)[-2:]
    y = m.add("TANH", [m.reshape(x, rows, channels)])
    y = m.layer(m.add("EXP", [m.layer(y, 12)]), channels)
    return m.add("ADD", [x, m.reshape(y, 1, rows, channels) if rank == 3 else y], (1, rows, channels))


@pytest.mark.device
@pytest.mark.quick(when=lambda rank: rank == 3)
@pytest.mark.parametrize("rank", [2, 3])
def test_an_image_becomes_rows_once_for_all_layers_behind_it(rank: int) -> None:
    m = Chain()
    x = m.reshape(m.conv(m.input((1, 5, 6, 7)), 3, out=8), 1, 12, 8)
    for _ in range(3):
        x = block(m, x, rank=rank)
    merged = apply("merge_movements", m.graph(m.layer(m.reshape(x, 12, 8), 5)))
    assert kinds(merged)["reshape"] == 1
    assert kinds(merged)["fully_connected"] == 7


@pytest.mark.device
@pytest.mark.quick(when=lambda batch: batch == 2)
@pytest.mark.parametrize("batch", [1, 2])
def test_layers_between_images_are_convolutions(batch: int) -> None:
    m = Chain()
    x = m.conv(m.input((batch, 5, 6, 7)), 3, out=8)
    for _ in range(2):
        y = m.layer(m.reshape(x, 12 * batch, 8), 8)
        x = m.conv(m.pad(m.reshape(y, batch, 3, 4, 8), [(0, 0), (1, 1), (1, 1), (0, 0)]), 3, out=8)
    merged = apply("merge_movements", m.graph(x))
    assert kinds(merged)["fully_connected"] == kinds(merged)["reshape"] == 0


@pytest.mark.device
def test_numbers_without_axes_are_no_rows() -> None:
    m = Chain()
    total = m.add("SUM", [m.input((3, 5)), m.ints([0, 1])], (), keep_dims=False)
    graph = apply("merge_movements", m.graph(m.add("MUL", [m.input((4,)), m.add("MUL", [total, total])])))
    assert kinds(graph)["map"] == 2


@pytest.mark.device
def test_a_convolution_of_pixels_that_are_rows_is_a_layer() -> None:
    m = Chain()
    x = m.layer(m.input((30, 7)), 8)
    y = m.conv(m.reshape(m.add("EXP", [x]), 1, 5, 6, 8), out=12)
    graph = apply("merge_movements", m.graph(m.layer(m.reshape(y, 30, 12), 3)))
    assert kinds(graph) == {"fully_connected": 3, "map": 1}


def test_a_convolution_of_an_image_stays_one() -> None:
    m = Chain()
    x = m.conv(m.input((1, 5, 6, 7)))
    graph = m.graph(m.conv(m.transpose(m.reshape(x, 2, 3, 5, 7), (1, 0, 2, 3))))
    assert kinds(rewritten("merge_movements", graph))["convolution"] == 2


@pytest.mark.device
def test_graph_inputs_and_outputs_are_matrices_in_the_hosts_order() -> None:
    """Nothing converts them; other readers of the input, and of the output, see what they saw."""
    m = Chain()
    x = m.input((3, 5, 8))
    y = m.reshape(m.layer(m.reshape(x, 15, 8), 8), 3, 5, 8)
    graph = m.graph(m.reshape(m.layer(m.reshape(m.add("ADD", [x, y]), 15, 8), 12), 3, 5, 12))
    merged = apply("merge_movements", graph)
    assert kinds(merged)["reshape"] == 0
    m = Chain()
    x = m.input((3, 5, 8))
    y = m.reshape(m.layer(m.reshape(x, 15, 8), 8), 3, 5, 8)
    mean = m.add("MEAN", [x, m.ints([1])], (3, 8))
    apply("merge_movements", m.graph(y, mean, m.add("MEAN", [y, m.ints([1])], (3, 8))))


@pytest.mark.device
@pytest.mark.parametrize("seed", range(6))
def test_the_whole_pipeline_keeps_results(seed: int) -> None:
    rng = np.random.default_rng(100 + seed)
    m = Chain()
    x = m.layer(m.input((24, 7)), 20)
    y = m.add("EXP", [random_chain(m, m.reshape(x, 4, 6, 20), rng)])
    z = m.reshape(x, 2, 12, 20)
    graph = m.graph(random_chain(m, y, rng), m.add("ADD", [z, m.add("ABS", [z])]))
    for expected, got in zip(run(graph), run(optimize(graph)), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.device
def test_the_first_rows_of_a_tensor_are_no_reshape_of_it() -> None:
    """They begin where it begins, in its order: lanes behind their channels would be those of the next row."""
    m = Chain()
    x = m.add("EXP", [m.input((4, 3))])
    y = m.reshape(m.cut(x, (0, 0), (2, 3), (1, 1)), 1, 2, 3, 1)
    graph = apply("merge_movements", m.graph(m.add("SUB", [y, m.weights(1, 2, 3, 1)])))
    for node in graph.nodes:
        if node.kind == "reshape":
            assert graph[node.inputs[0]].size == graph[node.output].size


def test_an_image_resized_to_its_own_size_is_that_image() -> None:
    """Also a constant, which a reshape behind it needs no kernel for."""
    m = Chain()
    x = m.add("RESIZE_BILINEAR", [m.weights(1, 4, 4, 8), m.ints([4, 4])], (1, 4, 4, 8), half_pixel_centers=True)
    graph = optimize(m.graph(m.add("MUL", [m.reshape(x, 16, 8), m.input((16, 8))])))
    assert kinds(graph) == {"map": 1}


@pytest.mark.device
def test_heads_are_multiplied_and_padded_as_the_channels_that_they_are_of() -> None:
    m = Chain()
    image = m.reshape(m.conv(m.input((1, 6, 5, 8)), out=8), 1, 30, 2, 4)
    other = m.cut(
        m.reshape(m.add("ABS", [m.input((1, 31, 8))]), 1, 31, 2, 4), (0, 1, 0, 0), (1, 31, 2, 4), (1, 1, 1, 1)
    )
    padded = m.pad(m.add("MUL", [other, image]), [(0, 0), (1, 0), (0, 0), (0, 0)])
    graph = apply("merge_movements", m.graph(m.add("NEG", [m.reshape(padded, 1, 31, 8)])))
    assert all(node.in_place for node in graph.nodes if node.kind == "reshape")
    assert kinds(graph)["strided"] == kinds(graph)["rearrange"] == 1


@pytest.mark.device
def test_heads_that_are_padded_themselves_are_no_channels() -> None:
    m = Chain()
    image = m.reshape(m.conv(m.input((1, 6, 5, 8)), out=8), 1, 30, 2, 4)
    graph = apply("merge_movements", m.graph(m.pad(image, [(0, 0), (0, 0), (0, 1), (0, 0)])))
    assert kinds(graph)["rearrange"] == 1


@pytest.mark.device
def test_a_softmax_of_what_is_moved_computes_in_the_shape_that_is_read() -> None:
    m = Chain()
    moved = m.transpose(m.add("ABS", [m.input((1, 11, 2, 15))]), (0, 2, 3, 1))
    weights = m.reshape(m.add("SOFTMAX", [moved], beta=1.0), 2, 15, 11)
    graph = apply("merge_movements", m.graph(m.add("NEG", [weights]), m.add("EXP", [weights])))
    assert kinds(graph) == {"map": 3, "strided": 1, "softmax": 1}


@pytest.mark.device
def test_a_number_of_more_axes_than_what_was_reshaped_has() -> None:
    m = Chain()
    doubled = m.add("MUL", [m.reshape(m.input((8,)), 1, 2, 4), m.weights(1, 1, 1)])
    graph = apply("merge_movements", m.graph(m.add("NEG", [doubled])))
    assert kinds(graph)["map"] == 2


@pytest.mark.device
@pytest.mark.parametrize("batch", [1, 5])
def test_the_mean_of_an_image_is_rounded_in_its_own_shape(batch: int) -> None:
    """A mean without its axes, and a layer of pixels after it: no node moves anything, so that no movement is saved."""
    m = Chain()
    image = m.input((batch, 3, 5, 8))
    mean = m.add("MEAN", [image, m.ints((1, 2))], (batch, 8), keep_dims=False)
    pixels = m.reshape(m.add("TANH", [mean]), batch, 1, 1, 8)
    graph = apply("merge_movements", m.graph(m.add("MUL", [image, pixels], (batch, 3, 5, 8))))
    assert kinds(graph) == {"reduce": 1, "map": 2}
