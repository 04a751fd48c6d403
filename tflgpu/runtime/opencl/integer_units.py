"""By which instructions the host's CPU multiplies 8-bit integers, where an OpenCL runtime takes inline assembly."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Literal

import pyopencl as cl

from tflgpu.runtime.opencl.quirks import INTEL, POCL, Driver, quirks_of

CPU_FLAGS = Path("/proc/cpuinfo")  # of Linux only: elsewhere functions keep other registers

# What tflgpu.kernels.integers describes, the fastest first, by the flag that a processor has for it.
UNITS_BY_FLAG = {"avx512_vnni": "avx512_vnni", "avx2": "avx2"}


def integer_unit(handle: cl.Device, kind: Literal["gpu", "cpu", "accelerator"]) -> str | None:
    """The unit of a device; None if it has none, or if its compiler is not known to take assembly."""
    driver = Driver.of(handle)
    compiles = driver.platform in (INTEL, POCL) and all(quirk.name != "unknown CPU" for quirk in quirks_of(driver))
    return _unit_of_host(CPU_FLAGS) if kind == "cpu" and compiles else None


@cache
def _unit_of_host(flags: Path) -> str | None:
    try:
        words = set(flags.read_text().split())
    except OSError:
        return None
    return next((unit for flag, unit in UNITS_BY_FLAG.items() if flag in words), None)
