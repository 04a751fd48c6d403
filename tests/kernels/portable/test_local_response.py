"""Local response normalization of windows that are wider than a vec4, and than all channels."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

import tflgpu
from tests.ops import reference
from tests.support.models import Builder


@pytest.mark.parametrize("radius", [0, 3, 5, 8, 50])
@pytest.mark.parametrize("family", ["cpu", "gpu"])
def test_wide_windows_are_right(radius: int, family: Literal["cpu", "gpu"], device_name: str) -> None:
    x = np.random.default_rng(0).normal(size=(1, 2, 3, 39)).astype(np.float32)
    builder = Builder()
    tensor = builder.input(x.shape)
    options = {"radius": radius, "bias": 1.0, "alpha": 0.5, "beta": 0.75}
    result = builder.add("LOCAL_RESPONSE_NORMALIZATION", [tensor], x.shape, **options)
    how = tflgpu.Options(
        device=device_name, execution=tflgpu.Execution(kernels=family, executor="launch"), precision="fp32", cache="off"
    )
    (got,) = tflgpu.compile(builder.finish([result]), how).run(x).values()
    expected = reference.local_response_normalization(x.astype(np.float64), radius, 1.0, 0.5, 0.75)
    np.testing.assert_allclose(got, expected, rtol=2e-6, atol=1e-7)
