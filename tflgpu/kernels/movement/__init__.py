"""Kernels that move elements, for devices of every architecture."""

from __future__ import annotations

KERNELS: tuple[str, ...] = (
    "gather_kernel",
    "scatter_kernel",
    "strided_kernel",
)
