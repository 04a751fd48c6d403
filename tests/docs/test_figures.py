"""The tables of figures are what benchmarks/results has."""

from __future__ import annotations

import pytest

from scripts.pages.make_figures import BLOCK, PAGES, ROOT, rewritten


@pytest.mark.parametrize("name", PAGES)
def test_no_table_is_stale(name: str) -> None:
    """``python -m scripts.pages.make_figures`` writes them anew."""
    text = (ROOT / name).read_text(encoding="utf-8")
    assert BLOCK.search(text) and rewritten(text) == text
