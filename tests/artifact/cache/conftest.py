"""Fixtures that tests of the cache share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a cache may be; nothing is there yet."""
    return tmp_path / "cache"
