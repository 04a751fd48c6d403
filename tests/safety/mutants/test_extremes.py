"""Integers at their extremes: a public error or LiteRT's answer, and nothing else.

``python -m tests.safety.mutants.extremes`` does many more of them.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.safety.mutants.extremes import judge, sample
from tests.safety.mutants.verdict import Court

# Windows, indices and sizes have the most numbers that count something.
ROWS = ("conv_2d", "max_pool", "strided_slice", "pad", "space_to_batch")


@pytest.fixture(scope="module")
def court() -> Iterator[Court]:
    with Court() as court:
        yield court


@pytest.mark.quick(when=lambda row: row in ROWS[:1])
@pytest.mark.parametrize("row", ROWS)
def test_extremes(row: str, court: Court) -> None:
    verdicts = [(mutant, judge(court, mutant)) for mutant in sample(3, row)]
    faults = [f"{mutant}\n{v.cause}\n{v.details}" for mutant, v in verdicts if v.outcome == "fault"]
    assert not faults, "\n\n".join(faults)
