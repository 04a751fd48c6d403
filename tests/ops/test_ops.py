"""Every row of the op table, on every OpenCL runtime, in both precisions, with a chain to fuse, and alone on the first.

The kernels for GPUs run on the same runtimes: each case takes one family in fp32 and the other in fp16. The simplest
example of each operator, of the smallest shapes, runs without a chain only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tflgpu
from tests.ops.axes import FAMILIES, ONE_OF_EACH, PRECISIONS, is_simplest
from tests.ops.batches import SIZE, alone_and_fused, drawn, in_batches, of_each
from tests.ops.case import Case, Row
from tests.ops.table import ROWS
from tests.ops.tolerance import SUMS_IN_HALF
from tests.quick import on_first_runtime
from tests.support.models import Builder
from tests.support.running import run_checked
from tests.support.side_by_side import run_together


def is_quick(row: Row, fused: bool, device_name: str) -> bool:
    """On the second runtime every sixth operator, with a chain. The first one computes all rows side by side."""
    return fused and not on_first_runtime(device_name) and row in ONE_OF_EACH[::6]


@pytest.mark.unoptimized
@pytest.mark.quick(when=on_first_runtime)
@pytest.mark.second_runtime(when=lambda: False)
@pytest.mark.parametrize("kernels", FAMILIES)
@in_batches()
def test_rows_alone_and_fused(rows: Sequence[Row], kernels: str, device_name: str) -> None:
    """Side by side in one program, of neighbouring batches in different precisions."""
    precision = PRECISIONS[(ROWS.index(rows[0]) // SIZE + FAMILIES.index(kernels)) % 2]
    cases = of_each(rows, alone_and_fused)
    run_together(cases, precision=precision, device=device_name, kernels=kernels, fallback="forbid")


@pytest.mark.quick(when=is_quick)
@pytest.mark.second_runtime(when=lambda row, fused: fused and row in ONE_OF_EACH[::2])
@pytest.mark.parametrize("fused", [False, True], ids=["alone", "fused"])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
@given(data=st.data())
def test_op(row: Row, fused: bool, device_name: str, pytestconfig: pytest.Config, data: st.DataObject) -> None:
    """The quick suite, the second runtime, and operators alone take one precision of each case."""
    case = data.draw(row.case(fused))
    families = data.draw(st.permutations(FAMILIES), label="families")
    programs = list(zip(PRECISIONS, families, strict=True))
    if not fused or not on_first_runtime(device_name) or not pytestconfig.getoption("all"):
        programs = [data.draw(st.sampled_from(programs), label="program")]
    if fused and is_simplest(data):
        return
    for precision, kernels in programs:
        # A fallback to the CPU would hide a missing kernel.
        run_checked(case, precision=precision, device=device_name, kernels=kernels, fallback="forbid")


def in_half(row: Row) -> list[Case]:
    tolerance = SUMS_IN_HALF[row.op]
    cases = drawn(row.case(fused=False, computed=True)) + drawn(row.case(fused=True, computed=True))[1:]
    return [replace(case, tolerance=replace(case.tolerance, fp16=tolerance)) for case in cases]


@pytest.mark.quick(when=lambda: True)
@pytest.mark.parametrize("kernels", FAMILIES)
@in_batches([row for row in ROWS if row.op in SUMS_IN_HALF])
def test_rows_that_add_up_in_half(rows: Sequence[Row], kernels: str, half_device: tflgpu.Device) -> None:
    """``precision="fp16_fast"``."""
    cases = of_each(rows, in_half)
    run_together(cases, precision="fp16_fast", device=half_device.index, kernels=kernels, fallback="forbid")


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
@pytest.mark.parametrize("code", ["SUM", "MEAN"])
def test_sums_of_few_bits_without_a_scale_are_left_to_litert(code: str, dtype: str) -> None:
    b = Builder()
    output = b.add(code, [b.input((2, 3), dtype), b.ints([1])], (2,), dtype, keep_dims=False)
    with pytest.raises(tflgpu.UnsupportedError, match=rf"{code}: input 0 has element type {dtype}; "):
        tflgpu.compile(b.finish([output]), tflgpu.Options(fallback="forbid"))
