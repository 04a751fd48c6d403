"""The forms in which callers give a model: a path or bytes."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path

Buffer = bytes | bytearray | memoryview

ModelSource = str | PathLike[str] | Buffer


def read_bytes(model: ModelSource) -> bytes:
    """The bytes of a model. Raises OSError."""
    if isinstance(model, str | PathLike):
        return Path(model).read_bytes()
    return bytes(model)


@contextmanager
def mapped(path: Path) -> Iterator[bytes | mmap.mmap]:
    """A file's bytes, mapped and not copied. Raises OSError."""
    with path.open("rb") as file:
        if path.stat().st_size == 0:  # an empty file cannot be mapped
            yield b""
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield data
