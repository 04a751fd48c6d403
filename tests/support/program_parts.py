"""Programs of several kernels, of which each has few functions, whatever a compiler could take."""

from __future__ import annotations

import pytest

from tflgpu.plan import program_parts


def divide_programs(monkeypatch: pytest.MonkeyPatch, many: int, each: int) -> None:
    """Divide programs of more than ``many`` functions into kernels of at most ``each``."""
    monkeypatch.setattr(program_parts, "MANY_FUNCTIONS", many)
    monkeypatch.setattr(program_parts, "OF_EACH", each)
