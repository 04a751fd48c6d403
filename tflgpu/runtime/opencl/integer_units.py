"""By which instructions the host's CPU multiplies 8-bit integers, where an OpenCL runtime takes inline assembly."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Literal

import pyopencl as cl

from tflgpu.runtime.opencl.quirks import INTEL, POCL, Driver, quirks_of

CPU_FLAGS = Path("/proc/cpuinfo")  # of Linux only: elsewhere functions keep other registers
MACHINE = "x86_64"  # an emulator of another one, as of containers for ARM, shows the flags of the host

# Units that tflgpu.kernels.integers describes, the fastest first, by the platform whose compiler was tried with it.
# Each has the name of the flag that a processor has for it.
UNITS_BY_PLATFORM = {INTEL: ("avx512_vnni", "avx2"), POCL: ("avx2",)}


def integer_unit(handle: cl.Device, kind: Literal["gpu", "cpu", "accelerator"]) -> str | None:
    """Return the unit of a device; None if it has none, or if its compiler is not known to take assembly.

    Args:
        handle: The device.
        kind: Its type; only CPUs have units.
    """
    driver = Driver.of(handle)
    if kind != "cpu" or any(quirk.name == "unknown CPU" for quirk in quirks_of(driver)):
        return None
    flags = _flags_of_host(CPU_FLAGS)
    return next((unit for unit in UNITS_BY_PLATFORM.get(driver.platform, ()) if unit in flags), None)


@cache
def _flags_of_host(flags: Path) -> frozenset[str]:
    try:
        found = flags.read_text().split()
    except OSError:
        return frozenset()
    return frozenset(found if os.uname().machine == MACHINE else ())
