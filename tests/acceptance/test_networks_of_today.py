"""Networks that PyTorch's users convert, with drawn weights: LiteRT's answers in fp32."""

from __future__ import annotations

import numpy as np
import pytest

import tflgpu
from tests.conftest import missing
from tests.support import litert
from tests.support.networks_of_today import NAMES, SHARED, redrawn


@pytest.mark.quick(when=lambda name: name.startswith(("dpt_small", "bert_mini")))
@pytest.mark.parametrize("name", NAMES or ["none"])
def test_litert_answers(name: str) -> None:
    if not NAMES:
        missing(f"the folder of networks {SHARED / 'nets'}")
    model, rng = redrawn(name), np.random.default_rng(0)
    with tflgpu.compile(model, tflgpu.Options(device="Intel", precision="fp32", cache="off")) as compiled:
        inputs = [
            rng.standard_normal(info.shape).astype(np.float32)
            if info.dtype == "float32"
            else rng.integers(0, 100, info.shape).astype(info.dtype)
            for info in compiled.inputs
        ]
        found = compiled.run(inputs).values()
    for got, expected in zip(found, litert.run(model, *inputs).values(), strict=True):
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5 * float(np.abs(expected).max()))
