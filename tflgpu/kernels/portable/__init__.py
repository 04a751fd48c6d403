"""Kernels that compute, for devices of every architecture."""

from __future__ import annotations

KERNELS: tuple[str, ...] = (
    "detection_kernels",
    "image_kernels",
    "long_rows",
    "lstm_kernel",
    "matmul_kernels",
    "reduction_kernels",
    "scan_kernels",
)
