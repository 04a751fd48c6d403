"""What planning needs to know of a device: plain data, so that a plan can be made where no device is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

StorageType = Literal["float", "half"]


@dataclass(frozen=True, kw_only=True)
class Target:
    """The facts of a device that choose kernel variants and tile sizes.

    family: ``"cpu"`` kernels give each work-group to one work-item that computes with explicit 16-lane vectors;
        ``"gpu"`` kernels spread a tile over the work-items of a group.
    compute_units: cores or multiprocessors; tile counts aim at a multiple of it.
    storage: element type of float activations and weights in device memory; arithmetic is always in float.
    fused_multiply_add: whether the built-in ``fma`` on vectors may be used. PoCL 3.0 aborts on ``fma(float16)``,
        so kernels there say ``a * b + c`` and leave contraction to the compiler.
    """

    family: Literal["cpu", "gpu"]
    compute_units: int
    storage: StorageType

    @property
    def local_size(self) -> int:
        """Work-items of one work-group of kernels that have no reason to choose their own number."""
        return 1 if self.family == "cpu" else 128
