"""Small models are planned and rendered for each kind of device, for branches that no runtime here takes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.fixed_cases import fixed_cases
from tests.support.planning import plan_of
from tests.support.targets import CPU, GPU, H200, H200_LAUNCHES
from tflgpu.codegen.render import render
from tflgpu.target import Target


@pytest.mark.parametrize("storage", ["float", "half"])
@pytest.mark.parametrize("target", [CPU, GPU, H200, H200_LAUNCHES], ids=["cpu", "gpu", "h200", "h200 launches"])
def test_each_small_model_is_rendered(target: Target, storage: str) -> None:
    for case in fixed_cases().values():
        plan = plan_of(case.model, replace(target, storage=storage))
        assert len(render(plan).names) == len(plan.kernels)
