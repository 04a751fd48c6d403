"""Kernels for NVIDIA's matrix units (compute capability 8.0 and newer)."""

from __future__ import annotations

from tflgpu.kernels.nvidia import (
    convolution_choice,
    depthwise_pointwise,
    implicit_gemm,
    implicit_gemm_multistage,
    pointwise_depthwise,
    pointwise_mean,
)

__all__ = [
    "convolution_choice",
    "depthwise_pointwise",
    "implicit_gemm",
    "implicit_gemm_multistage",
    "pointwise_depthwise",
    "pointwise_mean",
]
