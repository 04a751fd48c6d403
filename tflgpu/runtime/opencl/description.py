"""A device as data: what planning asks of it, from the device's own words and from what its host is known to be."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pyopencl as cl

from tflgpu.errors import DeviceError
from tflgpu.options import Options
from tflgpu.runtime.opencl.quirks import INTEL, POCL, Driver, loop_turns, quirks_of
from tflgpu.target import Limits, Target

MATRIX_UNIT = "mma.m16n8k16"  # as tflgpu.kernels.mma describes it


@dataclass(frozen=True, kw_only=True)
class DeviceDescription:
    """The facts of a device that plans depend on, its costs aside.

    Attributes:
        name: As its driver says.
        platform: The OpenCL platform's name.
        type: ``"gpu"``, ``"cpu"`` or ``"accelerator"``.
        version: The OpenCL version, as the device says.
        driver: The driver's version.
        memory: Global memory in bytes.
        compute_units: How many there are.
        kernels: The family of kernels that is the faster one there: what ``Options.execution.kernels`` ``"auto"``
            becomes.
        limits: What plans keep to.
        executor: What ``Options.execution.executor`` ``"auto"`` becomes.
        ptx: Whether its compiler takes NVIDIA's inline assembly.
        matrix_units: Whether it has tensor cores that kernels are there for, :data:`MATRIX_UNIT`.
        integer_unit: The instructions by which a CPU multiplies 8-bit integers, of :mod:`tflgpu.kernels.integers`.
        int64: Whether it computes with integers of 64 bits.
        float64: Whether it computes with doubles.
    """

    name: str
    platform: str
    type: Literal["gpu", "cpu", "accelerator"]
    version: str
    driver: str
    memory: int
    compute_units: int
    kernels: Literal["cpu", "gpu"]
    limits: Limits
    executor: Literal["launch", "claiming", "auto"]
    ptx: bool
    matrix_units: bool
    integer_unit: str | None
    int64: bool
    float64: bool

    def as_dict(self) -> dict[str, Any]:
        """Return the fields, those of the limits among them, as plain data."""
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "limits"}
        return own | asdict(self.limits)

    def target(self, options: Options) -> Target:
        """Return what planning needs to know, under the caller's choices.

        Raises DeviceError if the device does not have what they need.
        """
        execution = options.execution
        family = self.kernels if execution.kernels == "auto" else execution.kernels
        precision = options.precision
        if precision == "auto":
            precision = "fp32" if self.type == "cpu" and options.numerics.tolerance is None else "fp16"
        if precision == "fp16_fast" and not self.limits.half_arithmetic:
            raise DeviceError(
                f"precision 'fp16_fast' multiplies in half, which needs a device with cl_khr_fp16; {self.name} "
                f"({self.platform}) does not have it; use precision 'fp16', which stores half and computes in float"
            )
        if execution.executor == "persistent" and not (self.int64 and self.limits.local_bytes):
            raise DeviceError(
                f"executor 'persistent' needs a device with local memory and 64-bit integers; {self.name} "
                f"({self.platform}) does not have both; use executor 'launch'"
            )
        can_claim = self.executor == "claiming" and family == "cpu"
        if execution.executor == "claiming" and not can_claim:
            raise DeviceError(
                f"executor 'claiming' needs a CPU with the atomic operations of OpenCL C 2.0, and kernels for CPUs; "
                f"{self.name} ({self.platform}) does not have both; use executor 'launch'"
            )
        usual = "launch" if self.executor == "claiming" and not can_claim else self.executor
        return Target(
            family=family,
            compute_units=self.compute_units,
            storage="float" if precision == "fp32" else "half",
            arithmetic="half" if precision == "fp16_fast" else "float",
            executor=usual if execution.executor == "auto" else execution.executor,
            ptx=self.ptx,
            matrix_unit=MATRIX_UNIT if self.matrix_units else None,
            integer_unit=self.integer_unit if family == "cpu" and execution.integer_products == "auto" else None,
            limits=self.limits.of_plans,
            missing_types=tuple(name for name in ("int64", "float64") if not getattr(self, name)),
        )


# Extensions with a query for the number of work-items that run in lockstep.
_WARP = "cl_nv_device_attribute_query"
_WAVEFRONT = "cl_amd_device_attribute_query"
_REGISTERS = frozenset((_WARP, _WAVEFRONT))  # whose devices have 256 registers for each work-item
_SUBGROUPS = frozenset(("cl_khr_subgroups", "cl_intel_subgroups"))

VECTOR_WIDTHS = (4, 8, 16)  # floats of a register

ATOMICS = frozenset(("__opencl_c_atomic_order_acq_rel", "__opencl_c_atomic_scope_device"))

OLDEST_LANGUAGE = (1, 2)  # of OpenCL C: what all kernels are written in


def limits_of(handle: cl.Device) -> Limits:
    """Return the limits of a device. What it does not answer is taken for missing.

    Args:
        handle: The device.
    """
    extensions, driver = frozenset(handle.extensions.split()), Driver.of(handle)
    return Limits(
        work_group_size=min(handle.max_work_group_size, handle.max_work_item_sizes[0]),
        local_bytes=handle.local_mem_size,
        local_is_real=handle.local_mem_type == cl.device_local_mem_type.LOCAL,
        allocation_bytes=handle.max_mem_alloc_size,
        cache_bytes=handle.global_mem_cache_size,
        shares_memory=bool(handle.host_unified_memory),
        opencl_c=language_of(handle),
        registers=_registers(handle, extensions),
        loop_turns=loop_turns(driver),
        little_work=max((quirk.little_work for quirk in quirks_of(driver)), default=0),
        vector_width=_vector_width(handle),
        subgroup_width=_subgroup_width(handle, extensions),
        images=bool(handle.image_support),
        half_arithmetic="cl_khr_fp16" in extensions,
        integer_dot_product="cl_khr_integer_dot_product" in extensions,
        command_buffers="cl_khr_command_buffer" in extensions,
    )


def language_of(handle: cl.Device) -> tuple[int, int]:
    """Return the version of OpenCL C.

    Args:
        handle: The device.
    """
    found = re.search(r"OpenCL C (\d+)\.(\d+)", handle.opencl_c_version)
    return (int(found[1]), int(found[2])) if found else OLDEST_LANGUAGE


def language_of_atomics(handle: cl.Device) -> int:
    """Return the major version of OpenCL C in which work-groups acquire what others release; 0 if there is none.

    From version 3.0 on a device may leave it out, and reports an older language besides the newest.

    Args:
        handle: The device.
    """
    version = language_of(handle)[0]
    with suppress(cl.Error):
        features = {feature.name for feature in handle.opencl_c_features}
        return 3 if features >= ATOMICS else 0
    return 2 if version == 2 else 0


def has_shared_memory(handle: cl.Device) -> bool:
    """Whether there is memory that host and kernels use in turns without mapping it (fine-grained buffer SVM).

    Args:
        handle: The device.
    """
    return _has_virtual_memory(handle, cl.device_svm_capabilities.FINE_GRAIN_BUFFER)


def has_host_memory(handle: cl.Device) -> bool:
    """Whether kernels may use all memory of the host (fine-grained system SVM).

    Args:
        handle: The device.
    """
    return _has_virtual_memory(handle, cl.device_svm_capabilities.FINE_GRAIN_SYSTEM)


def _has_virtual_memory(handle: cl.Device, kind: int) -> bool:
    with suppress(cl.Error):
        return bool(handle.svm_capabilities & kind)
    return False


def _registers(handle: cl.Device, extensions: frozenset[str]) -> int:
    """OpenCL has no query. GPUs of phones and laptops have 64; a CPU's cache is as near as its registers."""
    return 256 if extensions & _REGISTERS or handle.type & cl.device_type.CPU else 64


def _vector_width(handle: cl.Device) -> int:
    """Return the greatest width that kernels are planned for and the device has; the least if it has none."""
    return max((n for n in VECTOR_WIDTHS if n <= handle.native_vector_width_float), default=min(VECTOR_WIDTHS))


def _subgroup_width(handle: cl.Device, extensions: frozenset[str]) -> int:
    """Where compilers choose it for each kernel, the least."""
    if not extensions & _SUBGROUPS or language_of(handle) < (2, 0):
        return 0
    if _WARP in extensions:
        return int(handle.warp_size_nv)
    if _WAVEFRONT in extensions:
        return int(handle.wavefront_width_amd)
    try:
        most = int(handle.max_num_sub_groups)
    except cl.Error:
        return 0
    return handle.max_work_group_size // most if most else 0


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
