"""Models of few operators and their inputs, and the device to run them on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tflgpu
from tests.conftest import missing
from tests.support.models import Builder


@pytest.fixture(autouse=True)
def _engines() -> None:
    pytest.importorskip("ai_edge_litert")
    if not tflgpu.devices():
        missing("an OpenCL device")


@pytest.fixture
def doubling(tmp_path: Path) -> Path:
    """A model of four floats, each of which it doubles."""
    builder = Builder()
    x = builder.input((1, 4), name="x")
    y = builder.add("ADD", [x, x], (1, 4), name="y")
    path = tmp_path / "doubling.tflite"
    path.write_bytes(builder.finish([y]))
    return path


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    """A folder of five inputs for it."""
    folder = tmp_path / "vectors"
    folder.mkdir()
    for number in range(5):
        np.save(folder / f"{number}.npy", np.roll(np.arange(4, dtype=np.float32), number)[None])
    return folder
