"""Programs that another test compiled already: equal source for equal devices gives equal binaries.

Many programs come again: models that several modules run, or parametrizations that change the call only. Everything but
the answer of the compiler's process is as without this. Tests of compiling itself have the marker ``compiles``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import pyopencl as cl
import pytest

from tflgpu.runtime.opencl import program
from tflgpu.runtime.opencl.compiling import compiler_process
from tflgpu.runtime.opencl.compiling.compiler_process import compiled_apart
from tflgpu.runtime.opencl.program import whole_text


@contextmanager
def compiled_once(folder: Path) -> Iterator[None]:
    """While this is open, programs of the compiler's process are kept in a folder, which other processes may share."""

    def compiled_or_read(device: cl.Device, source: str) -> bytes:
        words = (device.name, device.driver_version, *program.build_options(device, source), whole_text(device, source))
        path = folder / sha256("\0".join(words).encode()).hexdigest()
        if path.exists():
            return path.read_bytes()
        binary = compiled_apart(device, source)
        if binary:
            part = path.with_suffix(f".{os.getpid()}")
            part.write_bytes(binary)
            part.replace(path)
        return binary

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiler_process, "compiled_apart", compiled_or_read)
        yield
