"""KernelSource, Device -> kernels: compile each distinct function once, several programs at a time."""

from __future__ import annotations

import os

from tflgpu.codegen import KernelSource, prelude
from tflgpu.runtime.executor import Kernels
from tflgpu.runtime.program import compile_programs
from tflgpu.runtime.session import Session


def build(source: KernelSource, session: Session) -> Kernels:
    """Compile ``source`` for the session's device.

    The functions are dealt out to as many programs as there are cores, by length, so that compilers that use one
    thread a program are done sooner.
    """
    count = max(1, min(os.cpu_count() or 1, len(source.functions)))
    shares: list[list[str]] = [[prelude()] for _ in range(count)]
    names: list[list[str]] = [[] for _ in range(count)]
    for function in sorted(source.functions, key=lambda f: -len(f.source)):
        least = min(range(count), key=lambda i: sum(map(len, shares[i])))
        shares[least].append(function.source)
        names[least].append(function.name)
    programs = compile_programs(session.context, ["\n".join(texts) for texts in shares])
    return Kernels({name: program for program, own in zip(programs, names, strict=True) for name in own}, source.names)
