"""By how much the cost model is wrong about a kernel beside the one that it competes with: measured / predicted.

The table is data, ``corrections.json``: a factor for each kernel, and beside which one, where and when it was measured.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

TABLE = Path(__file__).with_name("corrections.json")


@dataclass(frozen=True)
class Correction:
    """A row of the table.

    Attributes:
        kernel: What is corrected.
        factor: Measured cycles divided by predicted ones, in proportion to those of ``beside``.
        beside: The kernel that computes the same in another way.
        device: Where it was measured.
        date: When, in ISO 8601.
        measured: What was seen, in a sentence.
    """

    kernel: str
    factor: float
    beside: str
    device: str
    date: str
    measured: str


@cache
def corrections() -> dict[str, Correction]:
    """The rows of the table by kernel."""
    rows = (Correction(**row) for row in json.loads(TABLE.read_text(encoding="utf-8")))
    return {row.kernel: row for row in rows}


def corrected(kernel: str, cycles: float) -> float:
    """The cycles of a kernel as they were measured to be.

    Args:
        kernel: A name in the table.
        cycles: What the cost model predicts.

    Raises:
        KeyError: The table has no such kernel.
    """
    return corrections()[kernel].factor * cycles
