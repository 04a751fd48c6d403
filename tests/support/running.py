"""Cases on a device."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import tflgpu
from tests.ops.case import Case

EXECUTION = ("executor", "kernels")


def run_checked(case: Case, **options: Any) -> str:
    """Run a case, and compare its outputs with those that it must give. Returns the source of its program.

    options: those of ``tflgpu.Options`` or ``tflgpu.Execution``; without a cache, and by default in fp32. What is wrong
    names them.
    """
    noted, chosen = replace(case, describe=f"{case.describe}; {options}"), options_of(**options)
    with tflgpu.compile(case.model, chosen) as compiled:
        noted.check(compiled.run(case.inputs).values(), chosen.precision)
        return compiled.source


def options_of(**options: Any) -> tflgpu.Options:
    """The arguments of :func:`run_checked` as options of tflgpu."""
    execution = tflgpu.Execution(**{name: options.pop(name) for name in EXECUTION if name in options})
    return tflgpu.Options(**{"precision": "fp32", "cache": "off", "execution": execution, **options})
