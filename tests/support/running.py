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
    noted = replace(case, describe=f"{case.describe}; {options}")
    execution = tflgpu.Execution(**{name: options.pop(name) for name in EXECUTION if name in options})
    chosen = {"precision": "fp32", "cache": "off", "execution": execution, **options}
    with tflgpu.compile(case.model, tflgpu.Options(**chosen)) as compiled:
        noted.check(compiled.run(case.inputs).values(), chosen["precision"])
        return compiled.source
