"""Find OpenCL devices and choose one."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import cache
from itertools import cycle
from typing import TYPE_CHECKING, Any, Literal

import pyopencl as cl

from tflgpu.artifact.cache import DeviceIdentity
from tflgpu.errors import DeviceError, DeviceWarning, warn_caller
from tflgpu.runtime.opencl.description import DeviceDescription, integer_unit, language_of_atomics, limits_of
from tflgpu.runtime.opencl.driver_files import chosen, drivers_visible, library_faults
from tflgpu.runtime.opencl.process import Using
from tflgpu.runtime.opencl.quirks import INTEL, POCL, Driver, demotion, faster_family, is_simulator

if TYPE_CHECKING:
    from tflgpu.runtime.opencl.missing_drivers import Machine

VARIABLE = "TFLGPU_DEVICE"

# Compute capabilities of NVIDIA's devices from which on there are fences and loads of the PTX memory model, and
# tensor cores with m16n8k16 tiles of half precision.
PTX_MEMORY_MODEL = (7, 0)

PTX_HALF_MATRICES = (8, 0)

# Among CPUs the compiler that vectorizes better comes first, and those that were never tried last.
PLATFORM_ORDER = (INTEL, POCL)

# The environment is changed for the loader while it looks for drivers: one thread at a time. A signal handler that
# interrupts it does not wait for itself.
_first_use = threading.RLock()


@dataclass(frozen=True, kw_only=True)
class Device(DeviceDescription):
    """One OpenCL device of this machine.

    Attributes:
        index: Its number among :func:`tflgpu.devices`.
        handle: Pyopencl's device.
    """

    index: int
    handle: cl.Device = field(compare=False, repr=False)

    @property
    def identity(self) -> DeviceIdentity:
        """The cache key of device and driver."""
        return DeviceIdentity(self.platform, self.name, self.driver)

    def as_dict(self) -> dict[str, Any]:
        """Return the fields that are plain data, those of the limits among them."""
        return {"index": self.index} | self.description.as_dict()

    @property
    def description(self) -> DeviceDescription:
        """Description of the device for planning, without the device."""
        return DeviceDescription(**{f.name: getattr(self, f.name) for f in fields(DeviceDescription)})


def devices() -> tuple[Device, ...]:
    """Every OpenCL device, the preferred one first; empty if there is none.

    Raises:
        DeviceError: This process was forked from one in which OpenCL was in use.
    """
    with Using(), _first_use:
        return _devices()


@cache
def _devices() -> tuple[Device, ...]:
    with drivers_visible():
        try:
            platforms = cl.get_platforms()
        except cl.Error:  # the loader found no vendor at all
            return ()
    found = []
    for platform in platforms:
        for handle in _handles(platform):
            with suppress(cl.Error):  # a device that cannot describe itself can do nothing else
                found.append((_preference(platform, handle), _describe(platform, handle)))
    found.sort(key=lambda pair: pair[0])
    return tuple(replace(device, index=number) for number, (_, device) in enumerate(found))


def _handles(platform: cl.Platform) -> list[cl.Device]:
    try:
        return list(platform.get_devices())
    except cl.Error:  # a driver without hardware
        return []


def _type(handle: cl.Device) -> Literal["gpu", "cpu", "accelerator"]:
    if handle.type & cl.device_type.GPU:
        return "gpu"
    return "cpu" if handle.type & cl.device_type.CPU else "accelerator"


def _preference(platform: cl.Platform, handle: cl.Device) -> tuple[int, int, int, int]:
    """Return a key to sort by: devices without a fault that puts them after others first, then by type, platform and
    size."""
    kind = _type(handle)
    order = PLATFORM_ORDER.index(platform.name) if platform.name in PLATFORM_ORDER else len(PLATFORM_ORDER)
    place = ("gpu", "cpu", "accelerator").index(kind), order if kind == "cpu" else 0
    return demotion(Driver.of(handle)), *place, -handle.max_compute_units


def _describe(platform: cl.Platform, handle: cl.Device) -> Device:
    generation = _compute_capability(handle)
    ptx = generation >= PTX_MEMORY_MODEL
    kind, int64 = _type(handle), handle.profile == "FULL_PROFILE" or "cles_khr_int64" in handle.extensions.split()
    claims = kind == "cpu" and int64 and language_of_atomics(handle)
    return Device(
        index=0,
        name=handle.name.strip(),
        platform=platform.name.strip(),
        type=kind,
        version=handle.version.strip(),
        driver=handle.driver_version.strip(),
        memory=handle.global_mem_size,
        compute_units=handle.max_compute_units,
        kernels=faster_family(Driver.of(handle)) or ("cpu" if kind == "cpu" else "gpu"),
        limits=limits_of(handle),
        executor="auto" if ptx else "claiming" if claims else "launch",
        ptx=ptx,
        matrix_units=generation >= PTX_HALF_MATRICES,
        integer_unit=integer_unit(handle, kind),
        int64=int64,
        float64="cl_khr_fp64" in handle.extensions.split(),
        handle=handle,
    )


def _compute_capability(handle: cl.Device) -> tuple[int, int]:
    """Return the generation of an NVIDIA device; (0, 0) for any other."""
    if "cl_nv_device_attribute_query" not in handle.extensions.split():
        return (0, 0)
    return handle.compute_capability_major_nv, handle.compute_capability_minor_nv


def idle_gpus(found: Sequence[Device]) -> list[str]:
    """Return a sentence with advice for each maker of GPUs whose GPUs this machine has and OpenCL does not.

    Args:
        found: The devices of OpenCL.
    """
    from tflgpu.runtime.opencl.missing_drivers import gpus_without_driver  # a start on a GPU does without

    missing = gpus_without_driver((device.name, device.platform) for device in found if device.type == "gpu")
    return _machine().gpu_advice(missing) if missing else []


def no_device() -> DeviceError:
    """Return the error for a machine without any OpenCL device, which says what helps."""
    gpus = idle_gpus(())
    driver = "" if gpus else ", or the OpenCL driver of your GPU"
    return DeviceError("; ".join(("no OpenCL device was found", _machine().cpu_advice() + driver, *gpus)))


def _machine() -> Machine:
    """Return the facts for advice about drivers."""
    from tflgpu.runtime.opencl.missing_drivers import Machine  # most starts do without

    return Machine(library_faults, chosen(os.environ))


def choose(request: str | int, threads: int | None = None) -> Device:
    """Return the device that the options ask for.

    Gives a DeviceWarning, once, if no CPU was asked for and one is taken because a GPU has no driver, and if a CPU
    cannot
    be partitioned.

    Args:
        request: An index, a type, or a part of a name, as of ``Options.device``.
        threads: Cores of a CPU; None for all.

    Raises:
        DeviceError: No device fits; the message lists what there is.
    """
    device = _requested(request)
    if threads is None or device.type != "cpu" or threads >= device.compute_units:
        return device
    try:
        with _first_use:
            return with_handle(device, next(_sub_devices(device.handle, threads)))
    except cl.Error:
        warn_caller(
            f"{device.name} ({device.platform}) cannot be partitioned: all of its {device.compute_units} cores are "
            f"used, and not {threads}",
            DeviceWarning,
        )
        return device


def with_handle(device: Device, handle: cl.Device) -> Device:
    """Return the device as a sub-device of it.

    Args:
        device: The whole.
        handle: The sub-device; its compute units become the device's.
    """
    return replace(device, handle=handle, compute_units=handle.max_compute_units)


def root_device(handle: cl.Device) -> cl.Device:
    """Return the device that a sub-device is a part of; the device itself if it is none.

    Args:
        handle: Any device.
    """
    with suppress(cl.Error):  # OpenCL 1.1 has no sub-devices
        while (parent := handle.parent_device) is not None:
            handle = parent
    return handle


@cache
def _sub_devices(handle: cl.Device, units: int) -> Iterator[cl.Device]:
    """Disjoint sub-devices with ``units`` compute units each, again and again in the same order."""
    counts = [units] * (handle.max_compute_units // units)
    numbers: list[Any] = [cl.device_partition_property.BY_COUNTS, *counts, 0]
    return cycle(handle.create_sub_devices(numbers))


def _requested(request: str | int) -> Device:
    found = devices()
    if not found:
        raise no_device()
    asked = repr(request)
    if request == "auto" and (request := os.environ.get(VARIABLE, "auto")) != "auto":
        asked = f"{VARIABLE}={request}"
    if request == "auto":
        if found[0].type == "cpu":
            _warn_of_idle_gpus(found)
        return found[0]
    if isinstance(request, int) or request.isdecimal():
        matching = [d for d in found if d.index == int(request)]
    else:
        wanted = request.lower()
        matching = [d for d in found if d.type == wanted and not is_simulator(Driver.of(d.handle))]
        matching += [d for d in found if wanted in d.name.lower() or wanted in d.platform.lower()]
    if not matching:
        listing = ", ".join(f"{d.index}: {d.name} ({d.platform}, {d.type})" for d in found)
        raise DeviceError(
            f"no OpenCL device matches {asked}; found {listing}; give an index, a type (cpu, gpu) or a part of a name"
            + "".join(f"; {sentence}" for sentence in idle_gpus(found))
        )
    return matching[0]


@cache
def _warn_of_idle_gpus(found: tuple[Device, ...]) -> None:
    if idle := idle_gpus(found):
        advice = f"{VARIABLE}=cpu chooses the CPU without this warning"
        warn_caller(f"{found[0].name} (cpu) is taken, for {'; '.join(idle)}; {advice}", DeviceWarning)
