"""Kernels that compute, for every family of devices."""

from __future__ import annotations

from tflgpu.kernels.portable import (
    convolution,
    local_response,
    lstm_kernel,
    matmul_kernel,
    pooling_kernels,
    reduction_kernels,
    resampling,
    scan_kernels,
)

__all__ = [
    "convolution",
    "local_response",
    "lstm_kernel",
    "matmul_kernel",
    "pooling_kernels",
    "reduction_kernels",
    "resampling",
    "scan_kernels",
]
