"""One small fault, and the files that may have some."""

from __future__ import annotations

import csv
from difflib import unified_diff
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
EQUIVALENTS = Path(__file__).with_name("equivalents.csv")


class Mutant(NamedTuple):
    """A part of a file from ``begin`` to ``end``, and what is to stand there. rule: by which it was made."""

    file: str
    begin: int
    end: int
    text: str
    rule: str

    def applied(self, source: str) -> str:
        """The file with the fault."""
        return source[: self.begin] + self.text + source[self.end :]

    def line(self, source: str) -> int:
        """The number of the line in which it begins."""
        return source.count("\n", 0, self.begin) + 1

    def changed(self, source: str) -> tuple[str, str]:
        """The lines that it changes, before and after, without white space around them."""
        first, last = source.rfind("\n", 0, self.begin) + 1, source.find("\n", self.end)
        return source[first:last].strip(), (source[first : self.begin] + self.text + source[self.end : last]).strip()

    def diff(self, source: str) -> str:
        """The change as a reader wants to see it."""
        before, after = (text.splitlines(keepends=True) for text in (source, self.applied(source)))
        return "".join(unified_diff(before, after, self.file, self.file, n=1))


def known_equivalents() -> dict[tuple[str, str, str], str]:
    """Reasons why a mutant changes no behaviour, by file, line before and line after."""
    with EQUIVALENTS.open(newline="") as file:
        return {(row["file"], row["before"], row["after"]): row["reason"] for row in csv.DictReader(file)}
