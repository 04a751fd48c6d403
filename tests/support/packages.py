"""Packages that are not there."""

from __future__ import annotations

import sys

import pytest


def hide_litert(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let LiteRT not be installed, for all that looks for it."""
    monkeypatch.setitem(sys.modules, "ai_edge_litert", None)
