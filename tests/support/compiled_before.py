"""Programs that another test, or an earlier run, compiled already: equal source for equal devices gives equal binaries.

Many programs come again: models that several modules run, parametrizations that change the call only, and nearly all of
them when the suite runs after a small change. Everything but the answer of the compiler's process is as without this.
Tests of compiling itself have the marker ``compiles``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from time import time

import pyopencl as cl
import pytest
from platformdirs import user_cache_dir

from tflgpu.runtime.opencl import compiler_process, program
from tflgpu.runtime.opencl.compiler_process import compiled_apart
from tflgpu.runtime.opencl.program import whole_text

UNUSED_SECONDS = 3 * 24 * 3600.0  # after which a program is removed


def kept_programs() -> Path | None:
    """Where programs of earlier runs are. None on CI, which compiles all of them, and where nothing can be kept."""
    folder = Path(user_cache_dir("tflgpu-tests", appauthor=False), "programs")
    if "CI" in os.environ:
        return None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.iterdir():
            if path.stat().st_mtime < time() - UNUSED_SECONDS:
                path.unlink(missing_ok=True)
    except OSError:
        return None
    return folder


@contextmanager
def compiled_once(folder: Path) -> Iterator[None]:
    """While this is open, programs of the compiler's process are kept in a folder, which other processes may share."""

    def compiled_or_read(device: cl.Device, source: str) -> bytes:
        words = (device.name, device.driver_version, *program.build_options(device, source), whole_text(device, source))
        path = folder / sha256("\0".join(words).encode()).hexdigest()
        if path.exists():
            path.touch()
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
