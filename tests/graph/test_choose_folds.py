"""Layers of rows compute matrices or images, whichever moves fewer elements, and no result changes."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
import pytest

import tflgpu
from tests.graph.model import Model, apply, assert_same_results, kinds
from tests.support import litert
from tests.support.planning import plan_of
from tests.support.targets import CPU, GPU
from tflgpu.graph.minimum_cut import SINK, SOURCE, Network
from tflgpu.passes import optimize
from tflgpu.passes.choose_folds import choose_folds


class Rows(Model):
    """A model with layers of rows in every shape."""

    def reshape(self, x: int, *shape: int) -> int:
        return self.add("RESHAPE", [x], shape, new_shape=list(shape))

    def layer(self, x: int, out: int) -> int:
        rows, depth = self.shape(x)
        weights = self.weights(out, depth, scale=depth**-0.5)
        return self.add("FULLY_CONNECTED", [x, weights, self.weights(out)], (rows, out))

    def mlp(self, x: int, height: int, width: int) -> int:
        """That of a SegFormer: two layers of rows, and windows of an image between them."""
        channels = self.shape(x)[-1]
        rows = height * width
        y = self.reshape(self.layer(self.reshape(x, rows, channels), 2 * channels), 1, height, width, 2 * channels)
        y = self.reshape(self.add("LOGISTIC", [self.depthwise(y)]), 1, rows, 2 * channels)
        y = self.layer(self.reshape(y, rows, 2 * channels), channels)
        return self.add("ADD", [self.reshape(y, *self.shape(x)), x])


def drawn(seed: int) -> tuple[Rows, int]:
    """Layers of 24 rows, of which each reads the result of one before it in another shape."""
    rng = np.random.default_rng(seed)
    m = Rows(seed)
    channels = int(rng.choice([3, 4, 6, 8]))
    shapes = [(24,), (1, 24), (1, 4, 6), (2, 12), (2, 3, 4), (1, 1, 24)]
    known = [m.convolution(m.input((1, 4, 6, 5)), channels)]
    for _ in range(rng.integers(6, 14)):
        x = known[-1] if rng.random() < 0.7 else int(rng.choice(known))
        x = m.reshape(x, *shapes[rng.integers(len(shapes))], channels)
        match rng.integers(6):
            case 0:
                y = m.layer(m.reshape(x, 24, channels), channels)
            case 1:
                y = m.convolution(m.reshape(x, 1, 4, 6, channels), channels, int(rng.choice([1, 3])))
            case 2:
                y = m.add("ADD", [x, m.reshape(int(rng.choice(known)), *m.shape(x))])
            case 3:
                y = m.add("MUL", [x, m.weights(channels)])
            case 4:
                y = m.add("SOFTMAX", [x], beta=1.0)
            case _:
                y = m.transpose(m.reshape(x, 4, 6, channels), (1, 0, 2))
        known.append(y)
    return m, m.add("MUL", [known[-1], m.weights(1)])


@pytest.mark.device
@pytest.mark.quick(when=lambda seed: seed < 4)
@pytest.mark.parametrize("seed", range(40))
def test_drawn_layers_of_rows_keep_their_results(seed: int) -> None:
    m, last = drawn(seed)
    graph = m.graph(last)
    assert_same_results(graph, optimize(graph))


@pytest.mark.device
def test_layers_around_windows_compute_images() -> None:
    m = Rows()
    x = m.reshape(m.convolution(m.input((1, 8, 8, 8)), 8, 3), 1, 64, 8)
    graph = m.graph(m.depthwise(m.reshape(m.mlp(m.mlp(x, 8, 8), 8, 8), 1, 8, 8, 8)))
    optimized = optimize(graph)
    assert kinds(optimized) == {"convolution": 5, "depthwise": 3}
    assert_same_results(graph, optimized)


@pytest.mark.device
def test_layers_between_products_compute_matrices() -> None:
    m = Rows()
    x = m.input((1, 24, 8))
    scores = m.add("BATCH_MATMUL", [x, m.transpose(x, (0, 2, 1))], (1, 24, 24), adj_x=False, adj_y=False)
    y = m.add("MUL", [m.add("EXP", [m.layer(m.reshape(scores, 24, 24), 8)]), m.weights(8)])
    graph = apply(choose_folds, m.graph(m.layer(y, 4)))
    assert kinds(graph)["fully_connected"] == 2


@pytest.mark.device
def test_an_image_that_only_a_matrix_is_read_of_is_stored_in_rows(device_name: str) -> None:
    """No kernel reshapes it; one that others read, or that does not fill its last vec4 so, stays as it is."""
    for shape, others, copies in ((1, 4, 6, 8), 0, 0), ((1, 4, 6, 8), 1, 1), ((1, 4, 6, 6), 0, 0), ((1, 3, 5, 5), 0, 1):
        m = Rows()
        image = m.depthwise(m.input(shape))
        flat = m.layer(m.reshape(image, 1, prod(shape)), 5)
        outputs = [flat, *([m.depthwise(image)] * others)]
        model = m.finish(outputs)
        for target in CPU, GPU:
            moved = sum(k.node.kind == "reshape" for k in plan_of(model, target).kernels)
            assert moved == copies, (shape, others)
        x = m.random.standard_normal(shape).astype(np.float32)
        expected = litert.run(model, x).values()
        for family, executor in ("cpu", "claiming"), ("gpu", "launch"):
            execution = tflgpu.Execution(kernels=family, executor=executor)
            options = tflgpu.Options(device=device_name, precision="fp32", cache="off", execution=execution)
            with tflgpu.compile(model, options) as compiled:
                for got, want in zip(compiled.run([x]).values(), expected, strict=True):
                    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * np.abs(want).max())


@pytest.mark.parametrize("seed", range(30))
def test_a_cut_is_the_least_of_all(seed: int) -> None:
    rng = np.random.default_rng(seed)
    network, nodes, edges = Network(), [SOURCE, SINK], []
    nodes += [network.node() for _ in range(rng.integers(1, 7))]
    for _ in range(rng.integers(3, 20)):
        begin, end, capacity = (int(n) for n in (*rng.choice(nodes, 2, replace=False), rng.integers(0, 9)))
        network.edge(begin, end, capacity)
        edges.append((begin, end, capacity))

    def cost(sink: frozenset[int]) -> int:
        return sum(capacity for begin, end, capacity in edges if begin not in sink and end in sink)

    found = network.sink_side()
    sides = [
        frozenset([SINK, *(n for n, chosen in zip(nodes[2:], some, strict=True) if chosen)])
        for some in product((False, True), repeat=len(nodes) - 2)
    ]
    least = min(map(cost, sides))
    assert SOURCE not in found and SINK in found
    assert cost(found) == least
    assert len(found) == min(len(side) for side in sides if cost(side) == least)
