"""Convolutions of few channels as two kernels in one way, whatever it costs."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Literal

import pytest

from tflgpu.kernels.divided import few_channels

Way = Literal["PIXELS", "TAPS", "PATCHES"]


def take_always(monkeypatch: pytest.MonkeyPatch, way: Way | None) -> None:
    """Let every convolution that can be divided be so in this way, and none in another; without a way none at all."""
    for name in ("PIXELS", "TAPS", "PATCHES"):
        gain = inf if name == way else 0.0
        monkeypatch.setattr(few_channels, name, replace(getattr(few_channels, name), gain=gain))
