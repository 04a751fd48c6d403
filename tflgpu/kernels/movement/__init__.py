"""Kernels that move elements, for devices of every architecture."""

from __future__ import annotations

KERNELS: tuple[str, ...] = (
    "concatenate",
    "gather_kernel",
    "lookup_kernel",
    "map",
    "overwrite_kernel",
    "rearrange",
    "scatter_kernel",
    "strided_kernel",
)
