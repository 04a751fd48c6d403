"""Convolutions of few channels as two kernels: in one way, whatever it costs, and what they then compute."""

from __future__ import annotations

from typing import Literal

import pytest

import tflgpu
from tests.ops.case import Case
from tests.support.corrections import ALWAYS, NEVER, correct
from tflgpu.kernels.gpu.divided.few_channels import WAYS

Precision = Literal["fp32", "fp16"]
Way = Literal["width blocking", "kn2row"]


def take_always(monkeypatch: pytest.MonkeyPatch, *ways: Way) -> None:
    """Let every convolution that can be divided be so in one of these ways, and none in another."""
    correct(monkeypatch, {name: ALWAYS if name in ways else NEVER for name in WAYS})


def check_divided(case: Case, device_name: str, precision: Precision, kernel: str, count: int) -> None:
    """That a model has so many kernels of this name, and the right results."""
    options = tflgpu.Options(
        device=device_name,
        execution=tflgpu.Execution(kernels="gpu"),
        precision=precision,
        fallback="forbid",
        cache="off",
    )
    with tflgpu.compile(case.model, options) as model:
        assert sum(k.kernel.startswith(kernel) for k in model.profile(case.inputs, 1).kernels) == count
        case.check(model.run(case.inputs).values(), precision)
