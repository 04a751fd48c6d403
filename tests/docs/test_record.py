"""The record keeps its form: short decisions that name their code, and tables whose rows begin with a date."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

INTERNALS = Path(__file__).parents[2] / "docs" / "internals"
DECISIONS = (INTERNALS / "decisions.md").read_text(encoding="utf-8").split("\n### ")[1:]
PARTS = ["Context", "Decision", "Consequence", "Code"]
MOST_LINES, MOST_DECISIONS = 8, 90

TABLES = sorted((INTERNALS / "measurements").glob("[!i]*.md"))
HEAD = "| date | device | model or shape | what was tried | before | after | kept |"


def title(decision: str) -> str:
    return decision.split("\n")[0]


@pytest.mark.quick(when=lambda decision: True)  # each takes no time
@pytest.mark.parametrize("decision", DECISIONS, ids=title)
def test_a_decision_is_short_and_names_its_code(decision: str) -> None:
    text = decision.split("\n## ")[0]  # the heading of the next group follows the last one of each
    assert sum(bool(line.strip()) for line in text.split("\n")) <= MOST_LINES, "figures belong to measurements/"
    assert re.findall(r"^- \*\*(\w+)\*\*: ", text, re.MULTILINE) == PARTS
    (path,) = re.findall(r"^- \*\*Code\*\*: \[.*\]\((.*)\)$", text, re.MULTILINE)
    assert (INTERNALS / path).is_file()


def test_decisions_are_few() -> None:
    titles = [title(decision) for decision in DECISIONS]
    assert len(set(titles)) == len(titles) <= MOST_DECISIONS, "corner cases belong to numerics.md"


@pytest.mark.parametrize("page", TABLES, ids=lambda page: page.stem)
def test_rows_of_measurements_are_whole(page: Path) -> None:
    rows = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    assert rows.count(HEAD) > 0
    for row in rows:
        assert row == HEAD or re.match(r"\|---|\| \d{4}-\d\d-\d\d \|", row), "each row begins with its date"
        cells = re.split(r"(?<!\\)\|", row)[1:-1]
        assert len(cells) == HEAD.count("|") - 1 and all(cell.strip() for cell in cells), row
