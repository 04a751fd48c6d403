"""Every row of the op table with each of its inputs in turn as a constant of the model."""

from __future__ import annotations

from dataclasses import replace
from itertools import count, takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import usable
from tests.ops.axes import FAMILIES, PRECISIONS, is_simplest
from tests.ops.case import Row
from tests.ops.table import ROWS
from tests.quick import RUNTIMES
from tests.support.running import run_checked

FIRST_OF_OPERATOR = {row.op: row.name for row in reversed(ROWS)}
SOME = sorted(FIRST_OF_OPERATOR.values())[::8]


@pytest.mark.quick(when=lambda row: row.name in SOME[::2])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
@given(data=st.data())
def test_each_input_can_be_a_constant(row: Row, data: st.DataObject) -> None:
    check_with_constants(row, usable(RUNTIMES[0]), data)


@pytest.mark.quick(when=lambda row: row.name == SOME[0])
@pytest.mark.parametrize("row", [row for row in ROWS if row.name in SOME], ids=lambda row: row.name)
@given(data=st.data())
def test_some_on_the_second_runtime(row: Row, data: st.DataObject) -> None:
    """What constants change is decided before a compiler sees it."""
    check_with_constants(row, usable(RUNTIMES[1]), data)


def check_with_constants(row: Row, device_name: str, data: st.DataObject) -> None:
    precision, kernels = data.draw(st.sampled_from(PRECISIONS)), data.draw(st.sampled_from(FAMILIES))
    held_inputs = (data.draw(row.case(fused=False, held=held)) for held in count())
    cases = [*takewhile(lambda case: case.holds_input, held_inputs)]
    if is_simplest(data):
        return
    for held, case in enumerate(cases):
        noted = replace(case, describe=f"input {held} is a constant; {case.describe}")
        run_checked(noted, precision=precision, device=device_name, kernels=kernels, fallback="forbid")
