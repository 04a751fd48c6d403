"""Convolutions of few channels as two kernels in one way, whatever it costs."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Literal

import pytest

from tflgpu.kernels.divided import few_channels

Way = Literal["PIXELS", "TAPS", "PATCHES"]


def take_always(monkeypatch: pytest.MonkeyPatch, *ways: Way) -> None:
    """Let every convolution that can be divided be so in one of these ways, and none in another."""
    for name in ("PIXELS", "TAPS", "PATCHES"):
        gain = inf if name in ways else 0.0
        monkeypatch.setattr(few_channels, name, replace(getattr(few_channels, name), gain=gain))
