"""Networks of benchmarks.language without their weights."""

from __future__ import annotations

import numpy as np

from benchmarks.language.description import described, drawn
from tests.support.models import Builder
from tflgpu.model.reader import read_model


def test_weights_are_drawn_again_and_tables_stay() -> None:
    builder = Builder()
    x = builder.input((1, 64), name="x")
    weights, mask, few = (
        builder.weights(64, 64, scale=3),
        np.triu(np.full((64, 64), -1e9, np.float32)),
        builder.weights(4, 4),
    )
    integers = builder.constant(np.arange(4096).reshape(64, 64).astype(np.int8))
    table = builder.constant(mask)
    y = builder.add("FULLY_CONNECTED", [x, weights, -1], (1, 64), name="y")
    builder.add("ADD", [integers, integers], (64, 64), "int8")
    builder.add("ADD", [table, few], (64, 64))
    model = builder.finish([y])
    again = drawn(described(model))
    before, after = (
        [read_model(data).subgraphs[0].tensors[t].data for t in (weights, integers, table, few)]
        for data in (model, again)
    )
    assert len(again) == len(model) and drawn(described(again)) != model
    for kept in (2, 3):
        assert np.array_equal(before[kept], after[kept])
    for changed in (0, 1):
        assert not np.array_equal(before[changed], after[changed])
    assert abs(np.std(after[0]) - 3) < 0.2 and 20 < np.std(after[1].astype(float)) < 40
    assert again == drawn(described(model)), "the same ones each time"
