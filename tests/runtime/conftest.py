"""A model of three inputs and outputs."""

from __future__ import annotations

import pytest

import tflgpu
from tests.runtime.device_arrays import CONFIGURATIONS, three_of_each


@pytest.fixture(params=CONFIGURATIONS)
def model(device_name: str, request: pytest.FixtureRequest) -> tflgpu.CompiledModel:
    """The model, by each executor and with each family of kernels that it is tested with."""
    options = tflgpu.Options(device=device_name, precision="fp32", execution=CONFIGURATIONS[request.param])
    return tflgpu.compile(three_of_each(), options)
