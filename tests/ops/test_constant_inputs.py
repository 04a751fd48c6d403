"""Every row of the op table with each of its inputs in turn as a constant of the model."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tflgpu
from tests.ops.case import Row
from tests.ops.table import ROWS
from tests.ops.test_ops import FAMILIES, PRECISIONS
from tests.ops.tolerance import check
from tests.quick import on_first_runtime

FIRST_OF_OPERATOR = {row.op: row.name for row in reversed(ROWS)}
SOME = sorted(FIRST_OF_OPERATOR.values())[::8]


@pytest.mark.quick(when=lambda row, device_name: row.name in SOME and on_first_runtime(device_name))
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
@given(data=st.data())
def test_each_input_can_be_a_constant(row: Row, device_name: str, data: st.DataObject) -> None:
    precision, kernels = data.draw(st.sampled_from(PRECISIONS)), data.draw(st.sampled_from(FAMILIES))
    options = tflgpu.Options(precision=precision, device=device_name, kernels=kernels, fallback="forbid", cache="off")
    for held in count():
        case = data.draw(row.case(fused=False, held=held))
        if not case.holds_input:
            break
        outputs = tflgpu.compile(case.model, options).run(case.inputs)
        note = f"{kernels} kernels; input {held} is a constant; {case.describe}"
        for got, expected in zip(outputs.values(), case.expected, strict=True):
            check(got, expected, case.tolerance, precision, note)
