"""Planning's knowledge of a device: types of elements, limits, the cost model's numbers, and all of them as a target.

Kernels count their work (k-steps, loads, bytes, products), and the numbers of a cost model turn counts into cycles;
:mod:`tflgpu.kernels.demand` says what a kernel takes of all. They are data: ``measured_costs.json`` has those of a GPU,
of its tensor cores and of a CPU's core, and says for each where and when it was measured, and by which layers. Only
ratios matter, so cycles are those of the device that was measured.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

# In device memory, by their OpenCL C names.
ElementType = Literal["float", "half", "int", "short", "ushort", "char", "uchar", "long", "uint", "double"]

VectorType = Literal["float", "int", "long", "uint", "double"]  # in registers

HALF_MAX = 65504.0  # the greatest finite half

# Half and float have all whole numbers up to these.
HALF_WHOLE, FLOAT_WHOLE = 1 << 11, 1 << 24

WIDEST = 16  # lanes of the widest vectors of OpenCL C

# The numpy types of the same elements.
HOST_DTYPES: dict[ElementType, str] = {
    "float": "float32",
    "half": "float16",
    "int": "int32",
    "short": "int16",
    "ushort": "uint16",
    "char": "int8",
    "uchar": "uint8",
    "long": "int64",
    "uint": "uint32",
    "double": "float64",
}

ITEM_BYTES: dict[ElementType, int] = {element: np.dtype(dtype).itemsize for element, dtype in HOST_DTYPES.items()}

# The elements of tensors whose type does not depend on the precision of the plan.
DEVICE_ELEMENTS: dict[str, ElementType] = {
    "bool": "uchar",
    **{dtype: element for element, dtype in HOST_DTYPES.items() if element != "float"},
}

# Vectors of these have functions of their own (templates/access/wide_ops.cl.j2).
WIDE: frozenset[VectorType] = frozenset(("long", "uint", "double"))


def vector_type(element: ElementType) -> VectorType:
    """Return the type in which kernels compute: halves become floats, booleans and integers of up to 16 bits ints.

    Args:
        element: The type in which a tensor is stored.
    """
    match element:
        case "float" | "half":
            return "float"
        case "long" | "uint" | "double":
            return element
        case _:
            return "int"


def vector_of(dtype: str) -> VectorType:
    """Return the type in which kernels compute with tensors of a numpy type.

    Args:
        dtype: Numpy's name of the type.
    """
    return vector_type(DEVICE_ELEMENTS.get(dtype, "float"))


def is_exact_in_half(data: NDArray[Any]) -> bool:
    """Whether half precision holds every number of an array; infinities and NaN count as not held.

    Args:
        data: Of any type.
    """
    return bool(np.all(np.clip(data, -HALF_MAX, HALF_MAX).astype(np.float16) == data))


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


TABLE = Path(__file__).with_name("measured_costs.json")


def measured_costs(name: str) -> dict[str, Any]:
    """Return the numbers of a row of the table, with tuples in place of its lists.

    Args:
        name: The row's.

    Raises:
        StopIteration: The table has no such row.
    """
    row = next(row for row in json.loads(TABLE.read_text(encoding="utf-8")) if row["name"] == name)
    return {key: tuple(value) if isinstance(value, list) else value for key, value in row["costs"].items()}


@dataclass(frozen=True, kw_only=True)
class CostModel:
    """Costs in cycles of one compute unit.

    tile_latency: of a tile without any k-step, from its first load to its last store.
    k_step_latency: of a k-step whose operands come from memory, while four k-steps are under way at once.
    batch_latency: of any number of k-steps whose operands are loaded at once.
    loaded_vec4s, products: vec4s that a compute unit loads in a cycle while its caches have them, and 4 x 4 products
        that it computes.
    tile_products: (pixels, slices, products) of convolutions by their tile, which tell more where they are known: of
        registers, and of what the compiler makes of it.
    splitting: by how much the k-steps that work-items share take longer, the reduction aside.
    reduction_latency, local_vec4s: of adding up partial sums: its latency, and the vec4s per cycle of local memory.
    shared_weight_bytes: per cycle, while all compute units read the same weights.
    launch_latency: from the end of one launched kernel to the beginning of the next.
    interval_latency: of the barrier between two kernels of the persistent executor.
    lockstep: work-items that run in step; a power of two. It does not pay to divide work within them.
    """

    tile_latency: float
    k_step_latency: float
    batch_latency: float
    loaded_vec4s: float
    products: float
    tile_products: tuple[tuple[int, int, float], ...]
    splitting: float
    reduction_latency: float
    local_vec4s: float
    shared_weight_bytes: float
    launch_latency: float
    interval_latency: float
    lockstep: int

    def working(self, items: int, loads: float, products: float, tile: tuple[int, ...]) -> float:
        """Return the cycles in which work-items of a compute unit load and multiply, which overlap.

        Args:
            items: The number of work-items.
            loads: Vec4s that each loads.
            products: Products of 4 x 4 that each makes.
            tile: Pixels and slices of a work-item, by which a measured rate is looked up.
        """
        for pixels, slices, rate in self.tile_products:
            if (pixels, slices) == tile:
                return items * products / rate
        return items * max(loads / self.loaded_vec4s, products / self.products)

    def reduction(self, vec4s: int) -> float:
        """Return the cycles of adding up partial sums; 0 where there are none.

        Args:
            vec4s: Partial sums of a work-group.
        """
        return self.reduction_latency + 2 * vec4s / self.local_vec4s if vec4s else 0.0

    def next_kernel(self, executor: Literal["launch", "persistent", "claiming", "auto"]) -> float:
        """Return the cycles between two kernels that depend on each other.

        Args:
            executor: ``auto`` is planned as the persistent executor.
        """
        return self.launch_latency if executor == "launch" else self.interval_latency


# Where nothing was measured of a device: the costs of one GPU.
BUILT_IN_COSTS = CostModel(**measured_costs("gpu"))

ExecutorName = Literal["launch", "persistent", "claiming", "auto"]

WHOLE_PLAN = "whole program"  # the key of the kernel that computes all nodes

# Turns of a loop in a model of little work, which takes the compiler little time as well.
UNROLLED = 16


def precision_of(storage: str, arithmetic: str) -> str:
    """Return the ``Options.precision`` of plans.

    Args:
        storage: The type in which activations and weights are stored.
        arithmetic: The type in which products are computed.
    """
    return "fp32" if storage == "float" else "fp16" if arithmetic == "float" else "fp16_fast"


@dataclass(frozen=True, kw_only=True)
class Target:
    """The facts of a device by which planning chooses lowerings and tile configurations.

    family: ``"cpu"`` kernels give each work-group to one work-item that computes with explicit 16-lane vectors;
        ``"gpu"`` kernels spread a tile over the work-items of a group.
    compute_units: cores or multiprocessors; tile counts aim at a multiple of it.
    storage: element type of float activations and weights in device memory.
    arithmetic: type of products of factors that are both stored in half, and of sums of a few such products, which are
        then added to floats. All other arithmetic is in float.
    executor: what runs the kernels, see :class:`tflgpu.Options`; ``"auto"`` where the device is good for both, and the
        compiler is to find out which is the faster. A plan for ``"auto"`` is one for ``"persistent"``.
    ptx: whether the compiler takes NVIDIA's inline assembly: it orders memory between work-groups and reads a clock. It
        says nothing of sizes or costs.
    matrix_unit: the name of the tensor core, as an architecture of :mod:`tflgpu.kernels` describes it; None for none.
    integer_unit: the name of the instructions by which a CPU multiplies 8-bit integers, as
        :mod:`tflgpu.kernels.integers` describes them; None for none.
    missing_types: element types of tensors that the device does not compute with, of "int64" and "float64".
    group: work-items of a work-group; None for the number that the executor wants.
    limits: what the device can hold, which no plan may exceed, and what it has.
    group_sizes: the most work-items of a group by the key of what its kernel is planned from, where the device's
        compiler was found to allow fewer than had been planned; of all kernels in one under :data:`WHOLE_PLAN`.
    cost_model: what work costs on the device; it ranks tile configurations and decides on fusions.
    unrolled: the most turns of an inner loop of convolutions on CPUs that are unrolled: compilers take longer for them.
    """

    family: Literal["cpu", "gpu"]
    compute_units: int
    storage: Literal["float", "half"]
    arithmetic: Literal["float", "half"] = "float"
    executor: ExecutorName = "launch"
    ptx: bool = False
    matrix_unit: str | None = None
    integer_unit: str | None = None
    missing_types: tuple[str, ...] = ()
    group: int | None = field(default=None, repr=False)
    limits: Limits = field(default_factory=Limits, repr=False)
    group_sizes: tuple[tuple[str, int], ...] = field(default=(), repr=False)
    cost_model: CostModel = field(default=BUILT_IN_COSTS, repr=False)
    unrolled: int = field(default=0, repr=False)

    @property
    def precision(self) -> str:
        """The ``Options.precision`` of such plans."""
        return precision_of(self.storage, self.arithmetic)

    def with_group_sizes(self, found: Mapping[str, int]) -> Target:
        """Return this target with more of :attr:`group_sizes`.

        Args:
            found: Work-items that a kernel may have, by its key.
        """
        return replace(self, group_sizes=tuple((dict(self.group_sizes) | dict(found)).items()))

    def allowed(self, key: str) -> Target:
        """Return this target for one kernel, whose groups may have fewer work-items.

        Args:
            key: The kernel's.
        """
        size = dict(self.group_sizes).get(key)
        return self if size is None else self.with_groups(size)

    def with_groups(self, most: int) -> Target:
        """Return this target with smaller work-groups.

        Args:
            most: Work-items of a group.
        """
        return replace(self, limits=replace(self.limits, work_group_size=min(most, self.limits.work_group_size)))

    def caches_hold(self, constant_bytes: int) -> bool:
        """Whether the caches of all cores together have room for constants.

        Args:
            constant_bytes: Their size.
        """
        return constant_bytes <= CORE_CACHE_BYTES * self.compute_units

    @property
    def of_one_core(self) -> Target:
        """The same for a model of little work, which one core of many computes."""
        return replace(self, compute_units=1, unrolled=UNROLLED)

    @property
    def overlaps_kernels(self) -> bool:
        """Whether independent kernels run at the same time, so that memory which they share would delay one."""
        return self.executor in ("persistent", "auto")

    @property
    def local_size(self) -> int:
        """Work-items of one work-group of kernels that have no reason to choose their own number: a power of two."""
        if self.family == "cpu":
            return 1
        # A persistent kernel has one group on each compute unit, which is to keep it busy alone.
        wanted = self.group or (256 if self.executor != "launch" else 128)
        return min(wanted, 1 << self.limits.work_group_size.bit_length() - 1)
