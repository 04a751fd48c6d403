"""Faults and oddities of OpenCL drivers, and what is done about each: the one place to look at, and to add to.

A work-round that needs more than a rank, a compiler option or a word to the user stands where the code is that it
changes; its record here says where.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyopencl as cl

INTEL = "Intel(R) OpenCL"
NVIDIA = "NVIDIA CUDA"
POCL = "Portable Computing Language"
OCLGRIND = "Oclgrind"


@dataclass(frozen=True)
class Driver:
    """What quirks are told by: the platform's name, the versions of device and driver as OpenCL reports them.

    can_round_division: whether its compiler has an option for correctly rounded division in single precision.
    """

    platform: str
    device_version: str
    driver_version: str
    can_round_division: bool = False

    @classmethod
    def of(cls, device: cl.Device) -> Driver:
        rounds = bool(device.single_fp_config & cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT)
        return cls(device.platform.name.strip(), device.version.strip(), device.driver_version.strip(), rounds)


@dataclass(frozen=True)
class Quirk:
    """One fault of some drivers.

    concerns: whether a driver has it. fault: what is wrong. remedy: what is done about it, and where. source: a link,
    or what has shown it. demotion: devices with a greater one come after all others, by default. options: for the
    driver's compiler. advice: what to tell the user when such a device fails.
    """

    name: str
    concerns: Callable[[Driver], bool]
    fault: str
    remedy: str
    source: str
    demotion: int = 0
    options: tuple[str, ...] = ()
    advice: str = ""


QUIRKS: tuple[Quirk, ...] = (
    Quirk(
        "simulator",
        lambda driver: driver.platform == OCLGRIND,
        fault="Oclgrind is a simulator, far slower than any device, and calls itself both a CPU and a GPU",
        remedy="it comes after every real device",
        source="https://github.com/jrprice/Oclgrind",
        demotion=1,
    ),
    Quirk(
        "unknown CPU",
        # On ARM "generic" is a name that clang takes.
        lambda driver: (
            driver.platform == POCL and "x86_64" in driver.device_version and driver.device_version.endswith("-generic")
        ),
        fault="PoCL's LLVM does not know the CPU (AMD's Zen 4 and 5 with the wheel of PyPI), calls it 'generic', and "
        "clang refuses that: nothing can be compiled",
        remedy="it comes after every device that works, and errors say what to install",
        source="https://github.com/pocl/pocl/issues/1049",
        demotion=2,
        advice="this PoCL does not know the CPU and cannot compile for it: install Intel's runtime with "
        '`pip install "tflgpu[cpu]"`, or a newer PoCL',
    ),
    Quirk(
        "rough division",
        lambda driver: driver.can_round_division,
        fault="a division may be 2.5 units in the last place off, as OpenCL allows",
        remedy="the compiler's option for correct rounding, where it has one",
        source="https://registry.khronos.org/OpenCL/specs/3.0-unified/html/OpenCL_C.html#relative-error-as-ulps",
        options=("-cl-fp32-correctly-rounded-divide-sqrt",),
    ),
    Quirk(
        "late compilation",
        lambda driver: driver.platform == POCL,
        fault="a kernel is compiled at its first launch, and a binary taken before does not have it",
        remedy="runtime/opencl/build.py takes binaries once every kernel has run",
        source="docs/internals/decisions.md: 2.3 s of compiling at every warm start of MobileNetV1 0.25 without it",
    ),
    Quirk(
        "cache at home",
        lambda driver: driver.platform == POCL,
        fault="there is no device where PoCL cannot make its cache below the home directory",
        remedy="runtime/opencl/loader.py gives it a temporary folder there",
        source="PoCL 3.0 with HOME=/dev/null",
    ),
    Quirk(
        "barrier in a branch",
        lambda driver: driver.platform == POCL,
        fault="the compiler aborts where a branch that it cannot foresee follows a barrier inside a branch",
        remedy="templates/executor/persistent.cl.j2 begins every turn of its loop with one more barrier",
        source="PoCL 3.0, on the first version of that template",
    ),
    Quirk(
        "overlapping sub-buffers",
        lambda driver: driver.platform == NVIDIA,
        fault="the driver crashes in clReleaseMemObject when overlapping sub-buffers are released",
        remedy="codegen/link.py gives kernels a buffer and an offset",
        source="driver 580.159 on an H100",
    ),
    Quirk(
        "text for a binary",
        lambda driver: driver.platform == NVIDIA,
        fault="a program's binary is PTX, which is compiled again at every load: 0.31 s for MobileNetV1 on an H200",
        remedy="runtime/opencl/cubin.py links it to machine code, which loads in 0.4 ms",
        source="docs/internals/decisions.md",
    ),
)


def quirks_of(driver: Driver) -> tuple[Quirk, ...]:
    """The quirks that a driver has."""
    return tuple(quirk for quirk in QUIRKS if quirk.concerns(driver))


def demotion(driver: Driver) -> int:
    """How far behind others its devices come: 0 for those without a quirk that matters there."""
    return max((quirk.demotion for quirk in quirks_of(driver)), default=0)


def compiler_options(driver: Driver) -> tuple[str, ...]:
    """Options for its compiler besides those that every driver gets."""
    return tuple(option for quirk in quirks_of(driver) for option in quirk.options)


def with_advice(message: str, driver: Driver) -> str:
    """An error's message, and what its user can do about a quirk."""
    return "; ".join((message, *(quirk.advice for quirk in quirks_of(driver) if quirk.advice)))
