"""Run TensorFlow Lite models on any OpenCL device.

model = tflgpu.compile("model.tflite", tflgpu.Options(precision="fp16"))
outputs = model.run({"input": image})
"""

from __future__ import annotations

from tflgpu.api import CompiledModel, compile, inspect
from tflgpu.artifact.cache import model_token
from tflgpu.errors import (
    BuildError,
    BundleError,
    CacheDirectoryError,
    CacheMissError,
    CacheWarning,
    DeviceError,
    FallbackWarning,
    InternalError,
    ModelError,
    PluginWarning,
    TflgpuError,
    UnsupportedError,
)
from tflgpu.interpreter import Interpreter
from tflgpu.model.tensor_info import TensorInfo
from tflgpu.options import Options
from tflgpu.report.profile import KernelTime, Profile
from tflgpu.report.report import OperatorReport, Report
from tflgpu.runtime.opencl.devices import Device, devices
from tflgpu.version import __version__

__all__ = [
    "BuildError",
    "BundleError",
    "CacheDirectoryError",
    "CacheMissError",
    "CacheWarning",
    "CompiledModel",
    "Device",
    "DeviceError",
    "FallbackWarning",
    "InternalError",
    "Interpreter",
    "KernelTime",
    "ModelError",
    "OperatorReport",
    "Options",
    "PluginWarning",
    "Profile",
    "Report",
    "TensorInfo",
    "TflgpuError",
    "UnsupportedError",
    "__version__",
    "compile",
    "devices",
    "inspect",
    "model_token",
]
