"""The forms in which callers give a model."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

Buffer = bytes | bytearray | memoryview
ModelSource = str | PathLike[str] | Buffer


def read_bytes(model: ModelSource) -> bytes:
    """The bytes of a model. Raises OSError."""
    if isinstance(model, str | PathLike):
        return Path(model).read_bytes()
    return bytes(model)
