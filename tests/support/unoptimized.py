"""Programs that a CPU's compiler does not optimize, which takes it less time.

Most tests are about what the generated source says: indices, layouts and graphs. What optimizers make of it is tested
in the folders that ``tests/tiers.py`` lists, and by the rows of the op table with the marker ``optimized``. A kernel
with barriers needs an optimized test, too, or one under Oclgrind: without optimization, work-items meet more often,
which hides that a barrier is missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyopencl as cl

from tflgpu.runtime.opencl import build, compiler_process, program

MODULES = (program, build, compiler_process)  # that ask for a program's options

_options = program.build_options


def unoptimized_options(device: cl.Device, text: str, *, draft: bool = False) -> list[str]:
    """In the place of ``build_options``."""
    return [*_options(device, text, draft=draft), "-cl-opt-disable"]


def compile_without_optimization() -> None:
    """In this process, from now on."""
    for module in MODULES:
        vars(module)["build_options"] = unoptimized_options


@contextmanager
def without_optimization() -> Iterator[None]:
    """While this is open, compilers do not optimize."""
    try:
        compile_without_optimization()
        yield
    finally:
        for module in MODULES:
            vars(module)["build_options"] = _options
