"""An OpenCL device's own words -> :class:`tflgpu.target.Limits`."""

from __future__ import annotations

import re
from contextlib import suppress

import pyopencl as cl

from tflgpu.runtime.opencl.quirks import Driver, loop_turns, quirks_of
from tflgpu.target import Limits

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
