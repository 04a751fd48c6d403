"""The last steps of detectors, which LiteRT runs on the CPU: shapes and values are LiteRT's."""

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
    model = tflgpu.compile(data, Options(precision="fp32", device=device_name))
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
    model = tflgpu.compile(data, Options(precision="fp32", device=device_name))
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
