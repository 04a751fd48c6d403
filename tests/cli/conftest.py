"""Devices, or none, and images for the tests of the command line."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import tflgpu
from tests.cli.command import DIGITS
from tests.support.limited_devices import let_devices_be
from tflgpu.cli.console import console


@pytest.fixture
def device() -> tflgpu.Device:
    """The best device. Without one a test is skipped, but on CI it fails."""
    if tflgpu.devices():
        return tflgpu.devices()[0]
    if os.environ.get("CI"):
        pytest.fail("no OpenCL device was found, and CI must have one")
    pytest.skip("no OpenCL device was found")


@pytest.fixture
def no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    let_devices_be(monkeypatch)


@pytest.fixture
def held_out() -> tuple[np.ndarray, np.ndarray]:
    with np.load(DIGITS / "held_out.npz") as data:
        return data["images"], data["labels"]


@pytest.fixture
def digit(tmp_path: Path, held_out: tuple[np.ndarray, np.ndarray]) -> Path:
    """The first held-out digit as an image four times its size, so that it must be resized."""
    path = tmp_path / "digit.png"
    grey = np.rint(held_out[0][0] * (255 / 16)).astype(np.uint8)
    Image.fromarray(grey).resize((32, 32), Image.Resampling.NEAREST).save(path)
    return path


@pytest.fixture
def columns(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Let a terminal have so many columns."""
    return partial(monkeypatch.setattr, console, "_width")
