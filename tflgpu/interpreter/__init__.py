"""LiteRT's ``ai_edge_litert.interpreter`` on an OpenCL device. A program changes to it by one import line.

Programs that are not to be edited find it under the old name: ``sys.modules["tflite_runtime.interpreter"] =
tflgpu.interpreter``.
"""

from __future__ import annotations

from tflgpu.interpreter.custom_ops import InterpreterWithCustomOps
from tflgpu.interpreter.delegate import Delegate, load_delegate
from tflgpu.interpreter.interpreter import Interpreter
from tflgpu.interpreter.op_resolver import OpResolverType
from tflgpu.interpreter.signature_runner import SignatureRunner

__all__ = [
    "Delegate",
    "Interpreter",
    "InterpreterWithCustomOps",
    "OpResolverType",
    "SignatureRunner",
    "load_delegate",
]
