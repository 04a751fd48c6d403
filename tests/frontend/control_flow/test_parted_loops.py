"""Loops with loops in their bodies that only a run decides: on the device where nothing else is allowed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tflgpu
from tests.frontend.control_flow.padded_suppression import draw_boxes, padded_suppression
from tests.support.litert import kept_interpreter, run_again
from tflgpu.options import CacheFiles, Execution, Options

BATCH, TILES, SIZE, MOST = 2, 3, 8, 20
DATA = padded_suppression(BATCH, TILES, SIZE, MOST)


@pytest.mark.parametrize("kernels", ["auto", "gpu"])
def test_suppression_by_tiles_is_that_of_litert(kernels: str, device_name: str, tmp_path: Path) -> None:
    """Also of what the cache has kept."""
    execution, files = Execution(kernels=kernels), CacheFiles(path=tmp_path)
    options = Options(precision="fp32", device=device_name, fallback="forbid", execution=execution, cache_files=files)
    models = [tflgpu.compile(DATA, options) for _ in range(2)]
    judge, rng, counts = kept_interpreter(DATA), np.random.default_rng(0), set()
    for spread in (1.0, 2.0, 4.0, 8.0) * 3:
        boxes = [draw_boxes(rng, BATCH, TILES * SIZE, spread)]
        expected = run_again(judge, boxes)
        for model in models:
            for got, wanted in zip(model.run(boxes).values(), expected, strict=True):
                np.testing.assert_array_equal(got, wanted, strict=True)
        counts.add(tuple(expected[1]))
    assert len(counts) > 2


def test_a_profile_has_all_of_its_parts(device_name: str) -> None:
    model = tflgpu.compile(DATA, Options(precision="fp32", device=device_name, fallback="forbid", cache="off"))
    boxes = draw_boxes(np.random.default_rng(0), BATCH, TILES * SIZE, 2.0)
    assert model.profile([boxes], runs=1).kernels


def test_litert_runs_them_where_it_may() -> None:
    """On the device the host decides on each iteration of each loop."""
    (loop,) = [o for o in tflgpu.inspect(DATA).operators if o.code == "WHILE"]
    assert any("how often it goes through" in reason for reason in loop.reasons)
