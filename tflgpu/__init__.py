"""Run TensorFlow Lite models on any OpenCL device.

model = tflgpu.compile("model.tflite", tflgpu.Options(precision="fp16"))
outputs = model.run({"input": image})
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import tflgpu.processes  # noqa: F401 - sees to Ctrl-C while a command imports what follows

# isort: split
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
    PrecisionWarning,
    TflgpuError,
    UnsupportedError,
)
from tflgpu.model.tensor_info import TensorInfo
from tflgpu.options import CacheFiles, CpuPart, Execution, Interface, Numerics, Options, Shapes
from tflgpu.report.profile import KernelTime, Profile
from tflgpu.report.report import OperatorReport, Report
from tflgpu.runtime.opencl.devices import Device, devices
from tflgpu.runtime.submission import Submission
from tflgpu.version import __version__

if TYPE_CHECKING:
    from tflgpu.interpreter import Interpreter
    from tflgpu.runtime.model_session import ModelSession
    from tflgpu.runtime.pool import Pool

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
    "Pool",
    "PrecisionWarning",
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


# Names whose import would slow down a start, found when they are first used: modules in the manner of LiteRT's, and
# classes with the modules that have them.
LATE_MODULES = ("compiled_model", "hardware_accelerator", "interpreter", "tensor_buffer")
LATE_CLASSES = {"Interpreter": "interpreter", "ModelSession": "runtime.model_session", "Pool": "runtime.pool"}


def __dir__() -> list[str]:
    """Return the names of the interface, without the modules behind it."""
    return sorted((*__all__, *LATE_MODULES))


def __getattr__(name: str) -> Any:
    """Return what is imported late."""
    if name in LATE_CLASSES:
        return getattr(import_module(f"tflgpu.{LATE_CLASSES[name]}"), name)
    if name in LATE_MODULES:
        return import_module(f"tflgpu.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
