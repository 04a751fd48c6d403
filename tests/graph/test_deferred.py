"""Constants whose elements are computed where they are read."""

from __future__ import annotations

from typing import Any
from weakref import ref

import numpy as np
import pytest

from tests.support.integer_weights import constant, draw, finished, take_from_memory
from tests.support.models import Builder
from tests.support.planning import plan_of
from tests.support.targets import CPU
from tflgpu.frontend import graph_builder
from tflgpu.graph.ir import Deferred, Tensor

pytest.importorskip("ai_edge_litert")


def test_elements_are_computed_only_where_they_are_read() -> None:
    computed = []

    def compute() -> np.ndarray:
        computed.append(1)
        return np.arange(6, dtype=np.float32).reshape(2, 3)

    tensor = Tensor(0, "", (2, 3), data=Deferred(compute, 24))
    marked = tensor.changed(precise=True)
    assert marked.is_constant and marked.precise and not tensor.precise and marked.constant_bytes == 24
    assert not computed
    data = marked.data
    assert data is tensor.data and data is not None and data.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert len(computed) == 1
    del data
    assert tensor.data is not None
    assert len(computed) == 2
    assert not Tensor(1, "", (2,)).is_constant and Tensor(1, "", (2,)).data is None


def test_weights_of_layers_are_never_floats_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[ref[Any]] = []
    most = 0

    def watched(tensor: Any, real: Any = graph_builder.dequantized) -> np.ndarray:
        nonlocal most
        array: np.ndarray = real(tensor)
        if array.ndim == 2:
            made.append(ref(array))
            most = max(most, sum(each() is not None for each in made))
        return array

    monkeypatch.setattr(graph_builder, "dequantized", watched)
    take_from_memory(monkeypatch)
    builder, random = Builder(), np.random.default_rng(3)
    stored = {}
    x = builder.input((1, 160))
    for _ in range(6):
        weights = draw(random, (160, 160), 8)
        w = constant(builder, weights)
        stored[w] = weights
        bias = builder.constant(np.zeros(160, np.float32))
        x = builder.add("TANH", [builder.add("FULLY_CONNECTED", [x, w, bias], (1, 160))])
    plan_of(finished(builder, [x], stored), CPU)
    assert len(made) >= 6 and 1 <= most <= 2
    assert not any(each() is not None for each in made)
