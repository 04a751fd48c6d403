"""Other corrections of the cost model, so that a kernel is chosen, or is not, whatever it costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf

import pytest

from tflgpu.kernels.cpu import convolution_kernels
from tflgpu.kernels.gpu import shared_sums
from tflgpu.target import corrections
from tflgpu.target.corrections import ALWAYS, NEVER

__all__ = ["ALWAYS", "NEVER", "correct"]


def correct(monkeypatch: pytest.MonkeyPatch, factors: Mapping[str, float]) -> None:
    """Let kernels of these names take so many times their cycles."""
    known = corrections.corrections()
    changed = {name: replace(known[name], factor=factor) for name, factor in factors.items()}
    monkeypatch.setattr(corrections, "corrections", lambda: {**known, **changed})


def pack_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let CPUs pack the image of every convolution that can be packed, also of one so small that quads are faster."""
    monkeypatch.setattr(convolution_kernels, "_cost_by_quads", lambda request: inf)


def divide_keys(monkeypatch: pytest.MonkeyPatch, parts: int) -> None:
    """Let work-groups of GPUs divide the keys of attentions so, whatever it costs to join the results."""
    monkeypatch.setattr(shared_sums, "PARTS", (parts,))
    monkeypatch.setattr(shared_sums, "joining_cycles", lambda *_: -1e9)
