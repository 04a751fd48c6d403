"""Devices that hold less than those of this machine, and refuse what exceeds it: a thin layer around a real runtime.

:func:`limited` replaces the functions of pyopencl by which tflgpu builds, allocates and launches. Each does what the
real one does, unless a device of these limits would refuse it. Then it raises the error that a driver reports.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import pyopencl as cl
import pytest

from tflgpu.runtime.opencl import devices
from tflgpu.runtime.opencl.devices import Device
from tflgpu.target import Limits

ENQUEUE, BUILD = "clEnqueueNDRangeKernel", "clBuildProgram"

# Names that a compiler for OpenCL C 1.2 without optional features does not know.
OPTIONAL = r"\b(?:(?:intel_|khr_)?sub_group_\w+|get_(?:\w+_)?sub_group\w*|cl_khr_\w+|image[123]d_\w+|arm_\w+|asm"
OPTIONAL += r"|(?<!_)half\d* \w+ *[=;]|dot_(?:acc_)?\w*packed\w*|atomic_(?:load|store|fetch)\w*|double\d*)\b"
LONG = r"\bu?long\d*\b"  # of embedded profiles without cles_khr_int64


@dataclass(frozen=True)
class Simulation:
    """A device with smaller limits than the one that simulates it.

    limits: the fields of :class:`Limits` that differ. int64: whether it computes with 64 bits. groups: greatest
    work-groups of built kernels, by the beginning of their names.
    """

    limits: Mapping[str, Any] = field(default_factory=dict)
    int64: bool = True
    groups: Mapping[str, int] = field(default_factory=dict)


PLAIN = {
    "opencl_c": (1, 2),
    "subgroup_width": 0,
    "images": False,
    "half_arithmetic": False,
    "integer_dot_product": False,
    "command_buffers": False,
}

SIMULATIONS = {
    "groups of 1": Simulation({"work_group_size": 1}),
    "groups of 64": Simulation({"work_group_size": 64}),
    "groups of 128": Simulation({"work_group_size": 128}),
    "8 KiB of local memory": Simulation({"local_bytes": 8 << 10}),
    "16 KiB of local memory": Simulation({"local_bytes": 16 << 10}),
    "no local memory": Simulation({"local_bytes": 0}),
    "64 registers": Simulation({"registers": 64}),
    "buffers of 64 MB": Simulation({"allocation_bytes": 64 << 20}),
    "OpenCL C 1.2 without optional features": Simulation(PLAIN),
    "an embedded profile": Simulation(PLAIN | {"local_bytes": 1 << 10, "work_group_size": 16}, int64=False),
}


@contextmanager
def limited(platform: str, simulation: Simulation) -> Iterator[Device]:
    """While this is open, the only device is one of a platform, with the limits of ``simulation``."""
    real = next(device for device in devices.devices() if device.platform == platform)
    limits = replace(real.limits, **{"local_is_real": True} | simulation.limits)  # kernels use it only then
    modern = "opencl_c" not in simulation.limits
    claims = simulation.int64 and modern  # it needs atomic operations, and 64-bit offsets
    types = {"int64": simulation.int64, "float64": real.float64 and modern}
    device = replace(real, index=0, limits=limits, **types, executor=real.executor if claims else "launch")
    with pytest.MonkeyPatch.context() as patch:
        let_devices_be(patch, device)
        patch.setattr(cl, "Buffer", _limited_buffer(limits))
        patch.setattr(cl, "enqueue_nd_range_kernel", _limited_launch(device))
        patch.setattr(cl._cl, "_Program", _limited_program(simulation))
        patch.setattr(cl.Kernel, "get_work_group_info", _limited_query(simulation))
        yield device


def let_devices_be(monkeypatch: pytest.MonkeyPatch, *found: Device) -> None:
    """Let these be all devices, the preferred one first."""
    monkeypatch.setattr(devices, "_devices", lambda: found)


def fails(routine: str, status: str, kind: type[cl.Error] = cl.LogicError) -> cl.Error:
    """The error that pyopencl raises where a driver's ``routine`` returns ``status``."""
    return kind(cl._cl._ErrorRecord(routine, getattr(cl.status_code, status), ""))


def _limited_buffer(limits: Limits) -> type[cl.Buffer]:
    class LimitedBuffer(cl.Buffer):
        def __init__(self, context: cl.Context, flags: int, size: int = 0, hostbuf: Any = None) -> None:
            if max(size, 0 if hostbuf is None else memoryview(hostbuf).nbytes) > limits.allocation_bytes:
                raise fails("clCreateBuffer", "INVALID_BUFFER_SIZE")
            super().__init__(context, flags, size, hostbuf)

    return LimitedBuffer


def _limited_launch(device: Device) -> Callable[..., cl.Event]:
    launch, query, handle = cl.enqueue_nd_range_kernel, cl.kernel_work_group_info, device.handle

    def limited_launch(
        queue: cl.CommandQueue, kernel: cl.Kernel, items: Any, group: Any, *rest: Any, **others: Any
    ) -> cl.Event:
        most = min(device.limits.work_group_size, kernel.get_work_group_info(query.WORK_GROUP_SIZE, handle))
        if group is not None and prod(group) > most:
            raise fails(ENQUEUE, "INVALID_WORK_GROUP_SIZE")
        if kernel.get_work_group_info(query.LOCAL_MEM_SIZE, handle) > device.limits.local_bytes:
            raise fails(ENQUEUE, "OUT_OF_RESOURCES", cl.RuntimeError)
        return launch(queue, kernel, items, group, *rest, **others)

    return limited_launch


def _limited_query(simulation: Simulation) -> Callable[..., Any]:
    query = cl.Kernel.get_work_group_info

    def limited_query(kernel: cl.Kernel, what: int, handle: cl.Device) -> Any:
        found = query(kernel, what, handle)
        if what != cl.kernel_work_group_info.WORK_GROUP_SIZE:
            return found
        return min(
            [found, *(most for name, most in simulation.groups.items() if kernel.function_name.startswith(name))]
        )

    return limited_query


def _limited_program(simulation: Simulation) -> type[cl._cl._Program]:
    unknown = "|".join(([OPTIONAL] if "opencl_c" in simulation.limits else []) + ([] if simulation.int64 else [LONG]))

    class LimitedProgram(cl._cl._Program):
        def __init__(self, context: cl.Context, text: Any, *binaries: Any) -> None:
            found = re.search(unknown, text) if unknown and isinstance(text, str) else None
            super().__init__(context, f"#error {found[0]} is not known here\n" if found else text, *binaries)

    return LimitedProgram
