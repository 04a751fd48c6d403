"""No operator that LiteRT runs is refused: what the device has not runs on the CPU, and gives the same bits."""

from __future__ import annotations

import numpy as np
import pytest

import tflgpu
from scripts.pages.litert_operators import on_device, versions_of_litert
from tests.fallback.cpu_operators import CPU_OPERATORS
from tests.frontend.dynamic_models import DynamicBuilder
from tests.support.litert import run


def test_every_operator_of_litert_has_a_place() -> None:
    assert {code for code in versions_of_litert() if not on_device(code)} == set(CPU_OPERATORS)


@pytest.mark.quick(when=lambda code: True)
@pytest.mark.parametrize("code", CPU_OPERATORS)
def test_what_only_the_cpu_has_runs_there(code: str) -> None:
    builder = DynamicBuilder()
    outputs, inputs = CPU_OPERATORS[code](builder)
    data = builder.finish(outputs)
    with pytest.warns(tflgpu.FallbackWarning):
        model = tflgpu.compile(data)
    assert code in {operator.code for operator in model.report.operators if operator.device == "cpu"}
    for got, expected in zip(model.run(inputs).values(), run(data, *inputs).values(), strict=True):
        assert got.shape == expected.shape and got.dtype == expected.dtype
        np.testing.assert_array_equal(got, expected)
