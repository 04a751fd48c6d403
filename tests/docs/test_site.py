"""The documentation as a site: it builds without a warning, every link leads somewhere, nothing is loaded from afar."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# What a browser loads by itself; links that a reader follows are no part of it.
LOADED = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*?\bsrc(?:set)?="(https?:[^"]+)"|@import[^;]*https?:|url\(["']?https?:"""
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout + result.stderr
    return folder


@pytest.mark.full(why="a build takes several seconds")
def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = [*site.rglob("*.html"), *site.rglob("*.css")]
    assert len(pages) > 15
    assert {str(page.relative_to(site)): found[0] for page in pages if (found := LOADED.search(page.read_text()))} == {}
