"""By how much the cost model is wrong about a kernel beside the one that it competes with: measured / predicted.

The table is data, ``corrections.json``: a factor for each kernel, and beside which one, where and when it was measured.
``python -m benchmarks.sweep.corrections`` writes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

TABLE = Path(__file__).with_name("corrections.json")

ALWAYS, NEVER = 0.0, 1e18  # factors of a trial, by which a kernel is chosen, or is not, whatever it costs


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


@dataclass(frozen=True)
class Prediction:
    """Cycles that the cost model predicts of a kernel, and of the one that it competes with."""

    kernel: str
    cycles: float
    beside: float


@dataclass(frozen=True)
class Trial:
    """Planning by other factors than the table's, which notes what was predicted."""

    factors: Mapping[str, float]
    predictions: list[Prediction] = field(default_factory=list)


_trial: ContextVar[Trial | None] = ContextVar("trial", default=None)


@cache
def corrections() -> dict[str, Correction]:
    """Return the rows of the table by kernel."""
    rows = (Correction(**row) for row in json.loads(TABLE.read_text(encoding="utf-8")))
    return {row.kernel: row for row in rows}


def corrected(kernel: str, cycles: float, beside: float) -> float:
    """Return the cycles of a kernel as they were measured to be.

    Args:
        kernel: A name in the table.
        cycles: What the cost model predicts of it.
        beside: What the cost model predicts of the kernel that it competes with.

    Raises:
        KeyError: The table has no such kernel.
    """
    factor = corrections()[kernel].factor
    if trial := _trial.get():
        trial.predictions.append(Prediction(kernel, cycles, beside))
        factor = trial.factors.get(kernel, factor)
    return factor * cycles


@contextmanager
def trial(factors: Mapping[str, float]) -> Iterator[Trial]:
    """Let plans that are made in this context go by other factors.

    Args:
        factors: By kernel, such as ALWAYS and NEVER.
    """
    current = Trial(factors)
    token = _trial.set(current)
    try:
        yield current
    finally:
        _trial.reset(token)
