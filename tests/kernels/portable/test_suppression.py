"""Non-maximum suppression by work-groups, as GPUs run it, against all boxes compared with all."""

from __future__ import annotations

import numpy as np
import pytest

import tflgpu
from tests.ops.suppression import suppressed
from tests.support.models import Builder
from tflgpu.options import Execution, Options


def _model(count: int, most: int, limits: tuple[float, ...]) -> bytes:
    builder = Builder()
    boxes, scores = builder.input((count, 4), name="boxes"), builder.input((count,), name="scores")
    places, kept = builder.tensor((most,), "int32", name="places"), builder.tensor((most,), name="kept")
    found = builder.tensor((), "int32", name="found")
    numbers = [builder.ints(most), *(builder.constant(np.float32(x)) for x in limits)]
    builder.op("NON_MAX_SUPPRESSION_V5", [boxes, scores, *numbers], [places, kept, found])
    return builder.finish([places, kept, found])


@pytest.mark.parametrize(
    ("count", "most", "limits"),
    [
        (400, 15, (0.5, 0.0, 0.0)),  # batches of candidates with equal scores
        (260, 240, (0.25, -2.0, 0.0)),  # every candidate is looked at, those below zero too
        (200, 5, (1.5, 0.0, 0.0)),  # a box that does not suppress itself
        (70, 30, (0.5, 0.0, 0.0)),
        (70, 30, (0.5, 0.0, 0.5)),  # Soft-NMS
    ],
)
def test_work_items_share_the_candidates(
    count: int, most: int, limits: tuple[float, float, float], monkeypatch: pytest.MonkeyPatch, device_name: str
) -> None:
    """Corners and scores are exact, with many ties, and boxes lie in clusters."""
    monkeypatch.setattr("tflgpu.kernels.portable.detection_kernels.fits_local", lambda *_: True)
    options = Options(precision="fp32", device=device_name, cache="off", execution=Execution(kernels="gpu"))
    model = tflgpu.compile(_model(count, most, limits), options)
    rng = np.random.default_rng(count + most)
    places = rng.integers(0, 256, (30, 2))[rng.integers(30, size=count)] + rng.integers(0, 12, (count, 2))
    boxes = (np.concatenate([places, places + rng.integers(0, 40, (count, 2))], 1) / 256).astype(np.float32)
    for values in (20, 4000):
        scores = (rng.integers(-values // 4, values, count) / 4096).astype(np.float32)
        expected, kept = suppressed(boxes, scores, most, *limits)
        got = model.run([boxes, scores])
        assert got["found"] == len(expected)
        np.testing.assert_array_equal(got["places"][: len(expected)], expected)
        np.testing.assert_allclose(got["kept"][: len(kept)], kept, rtol=1e-5)
