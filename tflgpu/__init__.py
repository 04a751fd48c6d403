"""Run TensorFlow Lite models on any OpenCL device.

model = tflgpu.compile("model.tflite", tflgpu.Options(precision="fp16"))
outputs = model.run({"input": image})
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tflgpu.api import CompiledModel, compile, inspect
from tflgpu.artifact.cache import model_token
from tflgpu.errors import (
    BuildError,
    BundleError,
    CacheDirectoryError,
    CacheMissError,
    CacheWarning,
    DeviceError,
    DeviceWarning,
    FallbackWarning,
    InternalError,
    ModelError,
    PluginWarning,
    TflgpuError,
    UnsupportedError,
)
from tflgpu.model.tensor_info import TensorInfo
from tflgpu.options import CacheFiles, CpuPart, Execution, Interface, Numerics, Options, Shapes
from tflgpu.report.profile import KernelTime, Profile
from tflgpu.report.report import OperatorReport, Report
from tflgpu.runtime.model_session import ModelSession
from tflgpu.runtime.opencl.devices import Device, devices
from tflgpu.runtime.submission import Submission
from tflgpu.version import __version__

if TYPE_CHECKING:
    from tflgpu.interpreter import Interpreter

__all__ = [
    "BuildError",
    "BundleError",
    "CacheDirectoryError",
    "CacheFiles",
    "CacheMissError",
    "CacheWarning",
    "CompiledModel",
    "CpuPart",
    "Device",
    "DeviceError",
    "DeviceWarning",
    "Execution",
    "FallbackWarning",
    "Interface",
    "InternalError",
    "Interpreter",
    "KernelTime",
    "ModelError",
    "ModelSession",
    "Numerics",
    "OperatorReport",
    "Options",
    "PluginWarning",
    "Profile",
    "Report",
    "Shapes",
    "Submission",
    "TensorInfo",
    "TflgpuError",
    "UnsupportedError",
    "__version__",
    "compile",
    "devices",
    "inspect",
    "model_token",
]


def __getattr__(name: str) -> Any:
    """``Interpreter`` and the module of LiteRT's other names, which a start without them need not wait for."""
    if name not in ("Interpreter", "interpreter"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module("tflgpu.interpreter")
    return module.Interpreter if name == "Interpreter" else module
