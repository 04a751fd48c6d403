"""What planning needs to know of a device: plain data, so that a plan can be made where no device is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ExecutorName = Literal["launch", "persistent", "auto"]


@dataclass(frozen=True, kw_only=True)
class Target:
    """The facts of a device that choose kernel variants and tile sizes.

    family: ``"cpu"`` kernels give each work-group to one work-item that computes with explicit 16-lane vectors;
        ``"gpu"`` kernels spread a tile over the work-items of a group.
    compute_units: cores or multiprocessors; tile counts aim at a multiple of it.
    storage: element type of float activations and weights in device memory; arithmetic is always in float.
    executor: what runs the kernels, see :class:`tflgpu.Options`; ``"auto"`` where the device is good for both, and the
        compiler is to find out which is the faster. A plan for ``"auto"`` is one for ``"persistent"``.
    ptx: whether the compiler takes NVIDIA's inline assembly: it orders memory between work-groups and reads a clock.
    matrix_units: whether that includes ``mma.sync.m16n8k16`` of half precision (compute capability 8.0).
    """

    family: Literal["cpu", "gpu"]
    compute_units: int
    storage: Literal["float", "half"]
    executor: ExecutorName = "launch"
    ptx: bool = False
    matrix_units: bool = False

    @property
    def local_size(self) -> int:
        """Work-items of one work-group of kernels that have no reason to choose their own number."""
        if self.family == "cpu":
            return 1
        # A persistent kernel has one group on each compute unit, which is to keep it busy alone.
        return 256 if self.ptx and self.executor != "launch" else 128
