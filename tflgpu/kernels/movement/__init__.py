"""Kernels that move elements, for every family of devices."""

from __future__ import annotations

from tflgpu.kernels.movement import concatenate, gather_kernel, lookup_kernel, map, rearrange

__all__ = ["concatenate", "gather_kernel", "lookup_kernel", "map", "rearrange"]
