"""Every row of the op table, on every OpenCL runtime, in both precisions, alone and with a chain to fuse.

The kernels for GPUs run on the same runtimes. A batch of rows is one program; where it fails, each case runs alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

import tflgpu
from tests.ops.axes import FAMILIES, ONE_OF_EACH, PRECISIONS
from tests.ops.batches import SIZE, alone_and_fused, drawn, in_batches, of_each
from tests.ops.case import Case, Row
from tests.ops.table import ROWS
from tests.ops.tolerance import SUMS_IN_HALF
from tests.quick import on_first_runtime
from tests.support.models import Builder
from tests.support.side_by_side import run_together


def in_turns(rows: Sequence[Row], kernels: str, precision: str) -> bool:
    """Neighbouring batches take a family in different precisions, and each batch takes both."""
    number = ROWS.index(rows[0]) // SIZE + FAMILIES.index(kernels)
    return precision == PRECISIONS[number % 2]


@pytest.mark.quick(
    when=lambda rows, kernels, precision, device_name: (
        in_turns(rows, kernels, precision) and on_first_runtime(device_name)
    )
)
@pytest.mark.second_runtime(when=lambda: False)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("kernels", FAMILIES)
@in_batches()
def test_rows_alone_and_fused(rows: Sequence[Row], kernels: str, precision: str, device_name: str) -> None:
    cases = of_each(rows, alone_and_fused)
    # A fallback to the CPU would hide a missing kernel.
    run_together(cases, precision=precision, device=device_name, kernels=kernels, fallback="forbid")


def fused(row: Row) -> list[Case]:
    return drawn(row.case(fused=True))[1:]


@pytest.mark.optimized
@pytest.mark.quick(
    when=lambda rows, device_name: not on_first_runtime(device_name) and ONE_OF_EACH.index(rows[0]) % (6 * SIZE) == 0
)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("kernels", FAMILIES)
@in_batches(ONE_OF_EACH)
def test_rows_with_optimization(rows: Sequence[Row], kernels: str, precision: str, device_name: str) -> None:
    """Each operator with a chain, as its users compile it: the optimizers of two compilers."""
    run_together(of_each(rows, fused), precision=precision, device=device_name, kernels=kernels, fallback="forbid")


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
