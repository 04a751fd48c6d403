"""Kernels for GPUs: a tile is spread over the work-items of a work-group."""

from __future__ import annotations

from tflgpu.kernels.architecture import PORTABLE, Architecture

GPU = Architecture("gpu", lambda target: target.family == "gpu", refines=PORTABLE).register()
