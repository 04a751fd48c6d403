"""Instructions of messages and pages about installing can be followed: no package index has tflgpu yet."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from tflgpu.errors import REQUIREMENTS, install_command

ROOT = Path(__file__).parents[2]
PLACES = ("README.md", "CONTRIBUTING.md", "docs", "examples", "scripts", "tflgpu")


def test_nothing_says_to_install_tflgpu_from_an_index() -> None:
    files = [f for place in PLACES for f in ((ROOT / place).rglob("*") if (ROOT / place).is_dir() else [ROOT / place])]
    texts = {f: f.read_text() for f in files if f.suffix in (".md", ".py", ".j2", ".html")}
    assert [f for f, text in texts.items() if re.search(r'pip install (-\S+ )*"?tflgpu(?![-_*])', text)] == []


def test_messages_name_what_the_extras_bring() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra, requirements in REQUIREMENTS.items():
        brought = [r.split(";")[0] for r in extras[extra] if not r.startswith("tflgpu")]
        assert list(requirements) == brought
    assert install_command("fallback") == '`pip install "ai-edge-litert>=1.2"`'


def test_the_site_has_what_breaks_signatures_into_lines() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert any(r.startswith(("ruff", "black")) for r in extras["docs"])
