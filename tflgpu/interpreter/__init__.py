"""LiteRT's ``ai_edge_litert.interpreter`` on an OpenCL device. A program changes to it by one import line.

Programs that are not to be edited find it under the old name: ``sys.modules["tflite_runtime.interpreter"] =
tflgpu.interpreter``.
"""

from __future__ import annotations

from tflgpu.interpreter.delegate import Delegate, load_delegate
from tflgpu.interpreter.interpreter import Interpreter, InterpreterWithCustomOps, OpResolverType, SignatureRunner

__all__ = [
    "Delegate",
    "Interpreter",
    "InterpreterWithCustomOps",
    "OpResolverType",
    "SignatureRunner",
    "load_delegate",
]
