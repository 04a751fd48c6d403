"""Kernels for GPUs: a tile is spread over the work-items of a work-group."""

from __future__ import annotations

from tflgpu.kernels.architecture import PORTABLE, Architecture

GPU = Architecture("gpu", lambda target: target.family == "gpu", refines=PORTABLE).register()

KERNELS: tuple[str, ...] = (
    "attention_kernel",
    "convolution_kernels",
    "depthwise_kernels",
    "divided_kernels",
    "excite_kernel",
    "few_channels",
    "fully_connected_kernels",
    "rewrites",
    "shared_sums",
)
