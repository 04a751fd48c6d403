"""Kernels for CPUs: a work-group is one work-item, which computes with explicit vectors of 16 lanes."""

from __future__ import annotations

from tflgpu.kernels.architecture import PORTABLE, Architecture
from tflgpu.target import WIDEST

CPU = Architecture("cpu", lambda target: target.family == "cpu", refines=PORTABLE).register()

VECTOR = WIDEST  # floats that kernels compute together

KERNELS: tuple[str, ...] = (
    "attention_kernel",
    "band_kernels",
    "convolution_kernels",
    "fully_connected_kernels",
    "moved_pixels",
    "rewrites",
    "row_kernels",
)
