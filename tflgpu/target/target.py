"""Planning's knowledge of a device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from tflgpu.target.cost_model import BUILT_IN_COSTS, CostModel
from tflgpu.target.device_limits import CORE_CACHE_BYTES, Limits

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
