"""Every row of the op table with each of its inputs in turn as a constant of the model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count

import pytest

from tests.ops.axes import FAMILIES, PRECISIONS
from tests.ops.batches import SIZE, drawn, in_batches, of_each
from tests.ops.case import Case, Row
from tests.ops.table import ROWS
from tests.quick import on_first_runtime
from tests.support.side_by_side import run_together


def with_constants(row: Row) -> Iterator[Case]:
    for held in count():
        case = drawn(row.case(fused=False, held=held))[-1]
        if not case.holds_input:
            return
        yield replace(case, describe=f"input {held} is a constant; {case.describe}")


@pytest.mark.quick(when=on_first_runtime)
@pytest.mark.second_runtime(when=lambda rows: ROWS.index(rows[0]) // SIZE % 8 == 0)
@in_batches()
def test_each_input_can_be_a_constant(rows: Sequence[Row], device_name: str) -> None:
    """Constants change the plan, before a compiler sees it; so the second runtime gets only some of the rows."""
    number = ROWS.index(rows[0]) // SIZE
    precision, kernels = PRECISIONS[number % 2], FAMILIES[number // 2 % 2]
    cases = of_each(rows, with_constants)
    run_together(cases, precision=precision, device=device_name, kernels=kernels, fallback="forbid")
