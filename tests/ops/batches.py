"""Rows of the op table in batches, of which each is a test: one program computes all of its cases."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ops.case import Case, Row
from tests.ops.table import ROWS

DRAWN = 8  # cases of which two are kept: to draw takes milliseconds, to compile takes most of a test's time
SIZE = 8  # rows; more of them take longer to tell apart when one fails


def in_batches(rows: Sequence[Row] = ROWS) -> pytest.MarkDecorator:
    """Parametrize ``rows``. The names of all are in the name of the case, so that ``-k`` finds each."""
    batches = [rows[n : n + SIZE] for n in range(0, len(rows), SIZE)]
    return pytest.mark.parametrize("rows", batches, ids=lambda batch: "+".join(row.name for row in batch))


def examples(strategy: st.SearchStrategy[Case]) -> list[Case]:
    """The simplest case and the next ones: the same in each run."""
    found: list[Case] = []

    @settings(max_examples=DRAWN, derandomize=True, database=None)
    @given(strategy)
    def collect(case: Case) -> None:
        found.append(case)

    collect()
    return found


def drawn(strategy: st.SearchStrategy[Case], others: Iterable[Case] = ()) -> list[Case]:
    """The simplest case, and of the next ones that with most choices, above all no numbers, which no other has."""
    first, *rest = examples(strategy)
    seen = first.choices.union(*(case.choices for case in others))

    def novelty(case: Case) -> tuple[int, int]:
        new = case.choices - seen
        return sum(not is_number for *_, is_number in new), len(new)

    return [first, *sorted(rest, key=novelty, reverse=True)[:1]]


@cache
def alone_and_fused(row: Row) -> list[Case]:
    """The simplest case and another one alone, and one with a chain of operators."""
    alone = drawn(row.case(fused=False))
    return alone + drawn(row.case(fused=True), alone)[1:]


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
