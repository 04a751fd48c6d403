"""KernelSource, Session -> kernels on the device."""

from __future__ import annotations

from tflgpu.codegen import KernelSource
from tflgpu.runtime.executor import Kernels
from tflgpu.runtime.program import compile_program
from tflgpu.runtime.session import Session


def build(source: KernelSource, session: Session) -> Kernels:
    """Compile ``source`` for the session's device; equal kernels are one function, compiled once.

    Raises BuildError with source and log if the device's compiler refuses.
    """
    return Kernels(compile_program(session.context, source.text), source.names)
