"""Model files for the tests of the cache."""

from __future__ import annotations

import pytest


@pytest.fixture
def settled_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every file have been as it is for long, so that the cache remembers its time stamp at once."""
    monkeypatch.setattr("tflgpu.artifact.cache.disk_cache.RACY_NANOSECONDS", -1)
