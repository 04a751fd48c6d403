"""Rows of the op table in batches, of which each is a test: one program computes all of its cases."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ops.case import Case, Row
from tests.ops.table import ROWS

SIZE = 8  # rows; more of them take longer to tell apart when one fails


def in_batches(rows: Sequence[Row] = ROWS) -> pytest.MarkDecorator:
    """Parametrize ``rows``. The names of all are in the name of the case, so that ``-k`` finds each."""
    batches = [rows[n : n + SIZE] for n in range(0, len(rows), SIZE)]
    return pytest.mark.parametrize("rows", batches, ids=lambda batch: "+".join(row.name for row in batch))


def drawn(strategy: st.SearchStrategy[Case], examples: int = 2) -> list[Case]:
    """The simplest case, and others: the same in each run."""
    found: list[Case] = []

    @settings(max_examples=examples, derandomize=True, database=None)
    @given(strategy)
    def collect(case: Case) -> None:
        found.append(case)

    collect()
    return found


@cache
def alone_and_fused(row: Row) -> list[Case]:
    """The simplest case and another one alone, and others with a chain of operators."""
    return drawn(row.case(fused=False)) + drawn(row.case(fused=True))[1:]


def of_each(rows: Iterable[Row], cases: Callable[[Row], Iterable[Case]]) -> list[Case]:
    """The cases of all rows. Rows that cannot be drawn fail together."""
    errors: list[Exception] = []

    def collected(row: Row) -> Iterator[Case]:
        try:
            yield from cases(row)
        except Exception as error:
            error.add_note(f"row {row.name}")
            errors.append(error)

    found = [case for row in rows for case in collected(row)]
    if errors:
        raise ExceptionGroup("rows that cannot be drawn", errors)
    return found
