"""Limits of a device, as it says itself: the numbers that no plan may exceed."""

from __future__ import annotations

from dataclasses import dataclass, replace

VEC4_BYTES = 16

# More than this no plan asks for. A larger buffer would hold several tensors, and a plan has several buffers in its
# place; only a tensor that is larger alone has a larger buffer.
ENOUGH_WORK_ITEMS = 1024
ENOUGH_LOCAL_BYTES = 64 << 10
ENOUGH_ALLOCATION_BYTES = 1 << 30
# A larger cache is one that cores share: Intel's runtime reports the second level, which each core has for itself, but
# PoCL the third.
CORE_CACHE_BYTES = 1 << 20


def cpu_work(macs: int, moved: int) -> int:
    """Return the work of a CPU, in multiplications: each byte that is moved takes as much as two of them.

    Args:
        macs: Multiplications.
        moved: Bytes.
    """
    return macs + 2 * moved


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The facts of a device that OpenCL reports. The defaults are those of a plan that no device is known for.

    Planning keeps to all numbers: whatever they are, every node has a kernel for work-groups of one work-item and for
    no local memory at all.

    work_group_size: greatest number of work-items in a group. A built kernel may allow fewer.
    local_bytes: local memory of a work-group; local_is_real says whether it is a memory of its own and not a part of
        the global one, where staging costs a copy and gains nothing.
    allocation_bytes: greatest size of one buffer.
    cache_bytes: of the cache that the device reports; 0 if it reports none.
    shares_memory: whether host and device have the same memory.
    opencl_c: version of the language, as (3, 0).
    registers: of 32 bits, as far as known; with more values a work-item has the compiler keeps some in memory.
    vector_width: floats of a vector register: 4, 8 or 16. Kernels for CPUs fill the registers by it.
    subgroup_width: work-items of a sub-group with broadcasts and reductions (``cl_khr_subgroups`` and its relatives),
        the least where it depends on the kernel; 0 where there are none, or OpenCL C is older than 2.0.
    loop_turns: greatest number of turns of loops of a work-item, all together. OpenCL knows no such limit.
    little_work: below which one core computes a model alone, because others would wake too late (:func:`cpu_work`).
    images, half_arithmetic, integer_dot_product, command_buffers: whether the device has image objects,
        ``cl_khr_fp16``, ``cl_khr_integer_dot_product``, ``cl_khr_command_buffer``.
    """

    work_group_size: int = 256
    local_bytes: int = 48 << 10
    local_is_real: bool = True
    allocation_bytes: int = 1 << 62
    cache_bytes: int = CORE_CACHE_BYTES
    shares_memory: bool = False
    opencl_c: tuple[int, int] = (1, 2)
    registers: int = 256
    vector_width: int = 16
    subgroup_width: int = 0
    loop_turns: int = 1 << 62
    little_work: int = 0
    images: bool = False
    half_arithmetic: bool = False
    integer_dot_product: bool = False
    command_buffers: bool = False

    @property
    def of_plans(self) -> Limits:
        """These limits as plans keep to them: no greater than a plan can tell from an unlimited one.

        A CPU's runtime derives some from the machine's memory and caches. Plans for equal machines are to be equal,
        because a bundle of the cache serves all of them.
        """
        return replace(
            self,
            work_group_size=min(self.work_group_size, ENOUGH_WORK_ITEMS),
            local_bytes=min(self.local_bytes, ENOUGH_LOCAL_BYTES),
            allocation_bytes=min(self.allocation_bytes, ENOUGH_ALLOCATION_BYTES),
            cache_bytes=min(self.cache_bytes, CORE_CACHE_BYTES),
        )

    @property
    def local_vec4s(self) -> int:
        """float4 elements of local memory that a work-group can have."""
        return self.local_bytes // VEC4_BYTES
