"""Sizes that only a run can tell, with upper bounds on the device: shapes and values are LiteRT's."""

from __future__ import annotations

import numpy as np
import pytest

import tflgpu
from tests.frontend.sized_models import MODELS
from tests.support.litert import kept_interpreter, run_again
from tflgpu.options import Execution, Options

RUNS = 60


@pytest.mark.parametrize("kernels", ["auto", "gpu"])
@pytest.mark.parametrize("name", MODELS)
def test_they_run_whole_on_the_device(name: str, kernels: str, device_name: str) -> None:
    data, draw = MODELS[name]
    execution = Execution(kernels=kernels)
    options = Options(precision="fp32", device=device_name, fallback="forbid", cache="off", execution=execution)
    model, judge, rng = tflgpu.compile(data, options), kept_interpreter(data), np.random.default_rng(0)
    shapes = set()
    for _ in range(RUNS):
        inputs = draw(rng)
        expected = run_again(judge, inputs)
        for got, wanted in zip(model.run(inputs).values(), expected, strict=True):
            assert got.shape == wanted.shape and got.dtype == wanted.dtype
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)
        shapes.add(tuple(e.shape for e in expected))
    assert len(shapes) > 2
