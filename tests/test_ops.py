"""Every row of the op table, on every OpenCL runtime, alone and with a chain to fuse.

The precision and the family of kernels are drawn like shapes are: the kernels for GPUs run on the same runtimes.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tflgpu

from .ops.case import Row
from .ops.table import ROWS
from .ops.tolerance import check


def _options(precision: str, device_name: str, kernels: str) -> tflgpu.Options:
    """Everything must run on the device: a fallback would hide a missing kernel."""
    return tflgpu.Options(precision=precision, device=device_name, kernels=kernels, fallback="forbid")


@pytest.mark.parametrize("fused", [False, True], ids=["alone", "fused"])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
@given(data=st.data())
def test_op(row: Row, fused: bool, device_name: str, data: st.DataObject) -> None:
    case = data.draw(row.case(fused))
    precision = data.draw(st.sampled_from(("fp16", "fp32")), label="precision")
    kernels = data.draw(st.sampled_from(("gpu", "cpu")), label="kernels")
    model = tflgpu.compile(case.model, _options(precision, device_name, kernels))
    outputs = model.run(case.inputs)
    for got, expected in zip(outputs.values(), case.expected, strict=True):
        check(got, expected, case.tolerance, precision, case.describe)
