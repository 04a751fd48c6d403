"""Programs that a CPU's compiler does not optimize, which takes it less time.

For tests of what the generated source says: indices, layouts and graphs, drawn or damaged. What optimizers make of the
same templates is tested by ``tests/acceptance``, ``pytest --all`` and others. The only test of a kernel with barriers
must be optimized, or run by Oclgrind: else Intel's runtime has all work-items meet more often, which hides that a
barrier is missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyopencl as cl

from tflgpu.runtime.opencl import build, program
from tflgpu.runtime.opencl.compiling import compiler_process

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
