"""LiteRT's ``ai_edge_litert.compiled_model`` on an OpenCL device. A program changes to it by its import lines.

This :class:`CompiledModel` has LiteRT's methods. What :func:`tflgpu.compile` returns is another class of this name.
"""

from __future__ import annotations

from tflgpu.compiled_model.litert_model import CompiledModel
from tflgpu.compiled_model.litert_options import (
    CpuKernelMode,
    CpuOptions,
    Environment,
    EnvironmentOptions,
    GpuOptions,
    IntelOpenVinoOptions,
    Options,
    QualcommOptions,
)
from tflgpu.hardware_accelerator import HardwareAccelerator
from tflgpu.tensor_buffer import TensorBuffer

__all__ = [
    "CompiledModel",
    "CpuKernelMode",
    "CpuOptions",
    "Environment",
    "EnvironmentOptions",
    "GpuOptions",
    "HardwareAccelerator",
    "IntelOpenVinoOptions",
    "Options",
    "QualcommOptions",
    "TensorBuffer",
]
