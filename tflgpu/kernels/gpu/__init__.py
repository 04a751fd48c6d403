"""Kernels for GPUs: a tile is spread over the work-items of a work-group."""

from __future__ import annotations

from tflgpu.kernels.gpu import convolution_gpu, excitation

__all__ = ["convolution_gpu", "excitation"]
