"""The last steps of detectors, on the device where the file gives the sizes: shapes and values are LiteRT's."""

from __future__ import annotations

import numpy as np
import pytest

import tflgpu
from tests.frontend.detectors import ANCHORS, FOUND, detector, draw
from tests.support import litert
from tests.support.models import Builder
from tflgpu.options import Options

pytestmark = pytest.mark.filterwarnings("ignore::tflgpu.FallbackWarning")


def test_a_detector_has_the_shapes_of_litert(device_name: str) -> None:
    data = detector()
    model = tflgpu.compile(data, Options(precision="fp32", device=device_name, fallback="forbid"))
    assert [info.shape for info in model.outputs] == [(1, FOUND, 4), (1, FOUND), (1, FOUND), (1,)]
    for seed in range(5):
        got, expected = model.run(draw(seed)), litert.run(data, *draw(seed))
        assert expected["count"] > 1
        for name, value in expected.items():
            np.testing.assert_allclose(got[name], value, atol=1e-5, strict=True)


@pytest.mark.parametrize("limit", [None, 0, 6])
@pytest.mark.parametrize("code", ["NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5"])
def test_suppression_has_the_shapes_of_litert(code: str, limit: int | None, device_name: str) -> None:
    """A limit in the file is the size of the results, of which the last number says how many are meant."""
    data = suppression(code, limit)
    fallback = "auto" if limit is None else "forbid"
    model = tflgpu.compile(data, Options(precision="fp32", device=device_name, fallback=fallback))
    for seed in range(5):
        corners = np.random.default_rng(seed).uniform(0, 1, (ANCHORS, 2, 2))
        boxes = np.sort(corners, 1).reshape(ANCHORS, 4).astype(np.float32)
        logits = np.random.default_rng(seed).normal(size=ANCHORS).astype(np.float32)
        inputs = [boxes, logits] + [np.array(3 + seed, np.int32)] * (limit is None)
        got, expected = model.run(inputs), litert.run(data, *inputs)
        for name, value in expected.items():
            np.testing.assert_allclose(got[name], value, atol=1e-5, strict=True)
        if limit is not None:
            assert [info.shape for info in model.outputs] == [v.shape for v in expected.values()]


def suppression(code: str, limit: int | None) -> bytes:
    """limit: the greatest number of results, None for an input. Behind it is one more layer for the device."""
    builder = Builder()
    boxes, logits = builder.input((ANCHORS, 4), name="boxes"), builder.input((ANCHORS,), name="logits")
    most = builder.input((), "int32", name="most") if limit is None else builder.ints(limit)
    thresholds = [builder.constant(np.float32(x)) for x in (0.5, 0.2, 0.5)[: 2 + (code[-1] == "5")]]
    scores = builder.add("LOGISTIC", [logits], (ANCHORS,))
    selected, count = builder.tensor((1,), "int32", name="selected"), builder.tensor((), "int32", name="count")
    kept = [builder.tensor((1,), name="kept")] * (code[-1] == "5")
    builder.op(code, [boxes, scores, most, *thresholds], [selected, *kept, count])
    picked = builder.add("GATHER", [boxes, selected], (), name="picked", axis=0)
    return builder.finish([selected, *kept, count, picked])


def test_a_head_without_anchors_runs_whole(device_name: str) -> None:
    """Exports of YOLOv8 end so: centres and sizes become corners, the best class of each box its score."""
    count, classes, most = 50, 3, 8
    builder = Builder()
    head = builder.input((1, 4 + classes, count), name="head")
    rows = builder.add("TRANSPOSE", [head, builder.ints([0, 2, 1])], (1, count, 4 + classes))
    table = builder.add("RESHAPE", [rows, builder.ints([count, 4 + classes])], (count, 4 + classes))

    def columns(start: int, size: int) -> int:
        return builder.add("SLICE", [table, builder.ints([0, start]), builder.ints([count, size])], (count, size))

    centres, sizes, scores = columns(0, 2), columns(2, 2), columns(4, classes)
    halves = builder.add("MUL", [sizes, builder.constant(np.float32(0.5))], (count, 2))
    corners = [builder.add(code, [centres, halves], (count, 2)) for code in ("SUB", "ADD")]
    boxes = builder.add("CONCATENATION", corners, (count, 4), axis=1)
    best = builder.add("REDUCE_MAX", [scores, builder.ints([1])], (count,), keep_dims=False)
    labels = builder.add("ARG_MAX", [scores, builder.ints(1)], (count,), "int32", output_type="INT32")
    limits = [builder.ints(most), *(builder.constant(np.float32(x)) for x in (0.45, 0.25, 0.0))]
    chosen, kept, found = builder.tensor((most,), "int32"), builder.tensor((most,)), builder.tensor((), "int32")
    builder.op("NON_MAX_SUPPRESSION_V5", [boxes, best, *limits], [chosen, kept, found])
    picked = builder.add("GATHER", [boxes, chosen], (most, 4), axis=0)
    named = builder.add("GATHER", [labels, chosen], (most,), "int32", axis=0)
    data = builder.finish([picked, named, kept, found])
    model = tflgpu.compile(data, Options(precision="fp32", device=device_name, fallback="forbid"))
    rng = np.random.default_rng(0)
    for least in (0.0, 0.2, 2.0):  # of the sizes: boxes that are apart, and that suppress each other
        x = np.concatenate([rng.uniform(0, 1, (1, 2, count)), rng.uniform(least, least + 0.2, (1, 2, count))], 1)
        x = np.concatenate([x, rng.uniform(0, 1 if least < 1 else 0.2, (1, classes, count))], 1).astype(np.float32)
        for got, expected in zip(model.run(x).values(), litert.run(data, x).values(), strict=True):
            np.testing.assert_allclose(got, expected, atol=1e-6, strict=True)
