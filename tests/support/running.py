"""Cases on a device."""

from __future__ import annotations

from typing import Any

import tflgpu
from tests.ops.case import Case


def run_checked(case: Case, **options: Any) -> str:
    """Run a case, and compare its outputs with those that it must give. Returns the source of its program.

    options: those of ``tflgpu.Options``; without a cache, and by default in fp32.
    """
    chosen = {"precision": "fp32", "cache": "off", **options}
    with tflgpu.compile(case.model, tflgpu.Options(**chosen)) as compiled:
        case.check(compiled.run(case.inputs).values(), chosen["precision"])
        return compiled.source
