"""Convolutions of few channels as two kernels: in one way, whatever it costs, and what they then compute."""

from __future__ import annotations

from typing import Literal

import pytest

from tests.ops.case import Case
from tests.support.corrections import ALWAYS, NEVER, correct
from tests.support.limited_devices import Simulation, limited
from tests.support.planning import templates
from tests.support.running import options_of, run_chosen
from tflgpu.kernels.gpu.few_channels import WAYS
from tflgpu.kernels.request import Chooser, first_ranked

Precision = Literal["fp32", "fp16"]
Way = Literal["width blocking", "kn2row"]


def take_always(monkeypatch: pytest.MonkeyPatch, *ways: Way) -> None:
    """Let every convolution that can be divided be so in one of these ways, and none in another."""
    correct(monkeypatch, {name: ALWAYS if name in ways else NEVER for name in WAYS})


def check_divided(
    case: Case, device_name: str, precision: Precision, kernel: str, count: int, choose: Chooser = first_ranked
) -> None:
    """That a model has so many kernels of this template, and the right results."""
    options = options_of(kernels="gpu", precision=precision)
    with limited(device_name, Simulation()) as device:  # whose local memory is real
        plan = run_chosen(case, device, options, choose, executor="launch")
    assert templates(plan).count(kernel) == count
