"""Networks that PyTorch's users convert, with drawn weights: LiteRT's answers in fp32."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import numpy as np
import pytest

import tflgpu
from tests.conftest import missing
from tests.support import litert

SHARED = Path(os.environ.get("TFLGPU_SHARED", Path(__file__).parents[3] / "shared"))
NAMES = sorted(path.name for path in (SHARED / "nets").glob("*.tflite.xz"))


def redrawn(name: str) -> bytes:
    """The file with its weights."""
    script = importlib.util.spec_from_file_location("redraw", SHARED / "nets" / "redraw.py")
    assert script is not None and script.loader is not None
    module = importlib.util.module_from_spec(script)
    script.loader.exec_module(module)
    model: bytes = module.redraw((SHARED / "nets" / name).read_bytes())
    return model


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
