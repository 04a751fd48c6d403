"""Other corrections of the cost model, so that a kernel is chosen, or is not, whatever it costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tflgpu.target import corrections
from tflgpu.target.corrections import ALWAYS, NEVER

__all__ = ["ALWAYS", "NEVER", "correct"]


def correct(monkeypatch: pytest.MonkeyPatch, factors: Mapping[str, float]) -> None:
    """Let kernels of these names take so many times their cycles."""
    known = corrections.corrections()
    changed = {name: replace(known[name], factor=factor) for name, factor in factors.items()}
    monkeypatch.setattr(corrections, "corrections", lambda: {**known, **changed})
