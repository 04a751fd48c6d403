"""What a device can hold and has, as it says itself: the numbers that no plan may exceed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The facts of a device that OpenCL reports. The defaults are those of a plan that no device is known for.

    work_group_size: greatest number of work-items in a group. A built kernel may allow fewer.
    local_bytes: local memory of a work-group; local_is_real says whether it is a memory of its own and not a part of
        the global one, where staging costs a copy and gains nothing.
    allocation_bytes: greatest size of one buffer.
    shares_memory: whether host and device have the same memory.
    opencl_c: version of the language, as (3, 0).
    subgroup_width: work-items of a sub-group with broadcasts and reductions (``cl_khr_subgroups`` and its relatives),
        0 where there are none.
    images, half_arithmetic, integer_dot_product, command_buffers: whether the device has image objects,
        ``cl_khr_fp16``, ``cl_khr_integer_dot_product``, ``cl_khr_command_buffer``.
    """

    work_group_size: int = 256
    local_bytes: int = 32 << 10
    local_is_real: bool = True
    allocation_bytes: int = 1 << 62
    shares_memory: bool = False
    opencl_c: tuple[int, int] = (1, 2)
    subgroup_width: int = 0
    images: bool = False
    half_arithmetic: bool = False
    integer_dot_product: bool = False
    command_buffers: bool = False
