"""Calls in the middle of another call by the same thread: none waits for the other, and each gives its own answer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tflgpu
from tests.quick import on_first_runtime
from tests.runtime.threads import interrupted
from tests.safety.models import scaled

ROOT = Path(__file__).parents[3]


@pytest.mark.second_runtime(when=lambda: False)
@pytest.mark.quick(when=on_first_runtime)
def test_calls_in_the_middle_of_another(device_name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", interrupted.__name__, device_name],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "TFLGPU_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout == "all right\n", done.stderr


def test_an_instance_for_a_call_in_the_middle_is_of_the_same_file(tmp_path: Path) -> None:
    path, x = tmp_path / "model.tflite", np.ones((1, 2, 2, 4), np.float32)
    path.write_bytes(scaled(2.0))
    model = tflgpu.compile(path, tflgpu.Options(cache="off"))
    with model._runner._turn():
        path.write_bytes(scaled(3.0))
        with pytest.raises(tflgpu.ModelError, match="has changed"):
            model.run(x)
    assert not model._model.is_read
    np.testing.assert_array_equal(model.run(x)["y"], 2 * x)
