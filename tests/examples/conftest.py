"""A folder like the repository's root after ``examples/download.py``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.examples.page import EXAMPLES


@pytest.fixture
def folder(shared: Path, tmp_path: Path) -> Path:
    (tmp_path / "examples").symlink_to(EXAMPLES)
    for name in ("images", "labels", "models"):
        (tmp_path / name).symlink_to(shared / name)
    return tmp_path
