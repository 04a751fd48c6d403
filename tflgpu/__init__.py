"""Run TensorFlow Lite models on any OpenCL device.

model = tflgpu.compile("model.tflite", tflgpu.Options(precision="fp16"))
outputs = model.run({"input": image})
"""

from __future__ import annotations

from tflgpu.api import CompiledModel, KernelTime, Profile, TensorInfo, compile, inspect
from tflgpu.errors import BuildError, DeviceError, FallbackWarning, ModelError, TflgpuError, UnsupportedError
from tflgpu.options import Options
from tflgpu.report import OperatorReport, Report
from tflgpu.runtime.devices import Device, devices

__version__ = "0.1.0.dev0"

__all__ = [
    "BuildError",
    "CompiledModel",
    "Device",
    "DeviceError",
    "FallbackWarning",
    "KernelTime",
    "ModelError",
    "OperatorReport",
    "Options",
    "Profile",
    "Report",
    "TensorInfo",
    "TflgpuError",
    "UnsupportedError",
    "compile",
    "devices",
    "inspect",
]
