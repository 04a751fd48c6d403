"""Kernels that compute, for devices of every architecture."""

from __future__ import annotations

KERNELS: tuple[str, ...] = (
    "convolution_kernels",
    "detection_kernels",
    "landmark_kernels",
    "local_response",
    "lstm_kernel",
    "matmul_kernels",
    "pooling_kernels",
    "reduction_kernels",
    "resampling",
    "scan_kernels",
)
