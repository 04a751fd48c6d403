"""Layers of the same rows become one whose result is sliced, where that costs nothing, and no result changes."""

from __future__ import annotations

import pytest

from tests.graph.model import Model, apply, kinds, rewritten


class Layers(Model):
    def layer(self, x: int, out: int, *, bias: bool) -> int:
        inputs = [x, self.weights(out, self.shape(x)[-1]), *([self.weights(out)] if bias else [])]
        return self.add("FULLY_CONNECTED", inputs, (self.shape(x)[0], out))

    def heads(self, x: int) -> int:
        rows, depth = self.shape(x)
        shape = (rows, depth // 4, 4)
        return self.transpose(self.add("RESHAPE", [x], shape, new_shape=list(shape)), (1, 0, 2))


@pytest.mark.device
@pytest.mark.quick(when=lambda biases: biases == (True, False, True))
@pytest.mark.parametrize("biases", [(True, False, True), (False, False, False)])
def test_projections_become_one_layer(biases: tuple[bool, ...]) -> None:
    """The projections have different sizes, and one is scaled first; their rows are one tensor in two reshapes."""
    m = Layers()
    x = m.add("EXP", [m.input((1, 9, 6))])
    rows = [m.add("RESHAPE", [x], (9, 6), new_shape=[9, 6]) for _ in range(3)]
    q, k, v = (m.layer(r, out, bias=bias) for r, out, bias in zip(rows, (8, 4, 12), biases, strict=True))
    scaled = m.add("MUL", [q, m.constant(m.random.random((), "float32"))])
    graph = m.graph(*map(m.heads, (scaled, k, v)))
    merged = apply("merge_products", graph)
    assert kinds(merged)["fully_connected"] == 1
    assert sum(node.kind == "rearrange" for node in merged.nodes) == 6


@pytest.mark.parametrize("case", ["another reader", "an output", "odd channels", "other rows"])
def test_other_layers_stay(case: str) -> None:
    m = Layers()
    x = m.input((9, 6))
    q = m.layer(x, 8, bias=True)
    k = m.layer(m.input((9, 6)) if case == "other rows" else x, 7 if case == "odd channels" else 8, bias=True)
    outputs = [m.heads(q), m.transpose(k, (1, 0))]
    outputs += [m.add("TANH", [k])] if case == "another reader" else [k] if case == "an output" else []
    graph = m.graph(*outputs)
    assert kinds(rewritten("merge_products", graph)) == kinds(graph)
