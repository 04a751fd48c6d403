"""Kernels for CPUs: a work-group is one work-item that computes with explicit vectors of 16 lanes."""

from __future__ import annotations

from tflgpu.kernels.cpu import convolution_cpu

__all__ = ["convolution_cpu"]
