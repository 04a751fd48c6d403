"""The forms in which callers give a model: a path or bytes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path

from tflgpu.errors import ModelError
from tflgpu.model.foreign_files import described_folder

Buffer = bytes | bytearray | memoryview

ModelSource = str | PathLike[str] | Buffer


class ModelContent:
    """A model's bytes. A file is read when they are first needed, and held until :meth:`release`.

    What is hashed is what is compiled: a file that is read again must not have changed.
    The bytes are a copy in memory, so that nothing that happens to the file or the caller's buffer can reach them. A
    mapped file would change under its reader, and kill the process if it was truncated.

    path: of the file, absolute because the working directory can change; None for a model given as bytes.
    status: of the file that was read, taken before; None until then.
    """

    def __init__(self, model: ModelSource) -> None:
        """Raise TypeError for neither a path nor bytes, ValueError for an empty path."""
        self.path: Path | None = None
        self.status: os.stat_result | None = None
        self._bytes: bytes | None = None
        if not isinstance(model, str | PathLike):
            self._bytes = _bytes_of(model)
        elif not os.fspath(model):
            raise ValueError("model is an empty path")
        else:
            self.path = Path(model).absolute()

    @property
    def name(self) -> str | None:
        """Name of the file, without its folder."""
        return self.path.name if self.path else None

    @property
    def is_read(self) -> bool:
        """Whether the bytes are in memory."""
        return self._bytes is not None

    @property
    def bytes(self) -> bytes:
        """Raises OSError if the file cannot be read, ModelError if it is none, or another one than at first."""
        if self._bytes is None:
            assert self.path is not None
            check_is_file(self.path)
            with open(self.path, "rb", buffering=0) as file:
                status = os.fstat(file.fileno())  # of the open file: the path may already name another one
                if self.status is not None and _identity(status) != _identity(self.status):
                    raise ModelError("the file has changed since it was read first; compile it again")
                self.status = status
                self._bytes = file.read()
        return self._bytes

    @contextmanager
    def naming_file(self) -> Iterator[None]:
        """While the bytes are read: a ModelError begins with the file's path."""
        try:
            yield
        except ModelError as error:
            if self.path is None:
                raise
            raise ModelError(f"{self.path}: {error}") from error

    def release(self) -> None:
        """Drop the bytes of a file, of which the device or an artifact has what it needs."""
        if self.path is not None:
            self._bytes = None


def check_is_file(path: Path) -> None:
    """Raise ModelError for a folder that is a model of another kind, and for a device, which may have no end."""
    if path.is_dir() and (found := described_folder(path)):
        raise ModelError(f"not a TensorFlow Lite model: {found}")
    if path.is_char_device() or path.is_block_device():
        raise ModelError("not a TensorFlow Lite model: it is a device of the system, and no file")


def _identity(status: os.stat_result) -> tuple[int, ...]:
    """Return what differs between two files, or two states of one."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _bytes_of(model: Buffer) -> bytes:
    """Return a copy of a buffer; bytes themselves need none."""
    try:
        return model if isinstance(model, bytes) else bytes(memoryview(model))
    except TypeError:
        kind = type(model).__name__
        raise TypeError(f"model is of type {kind}; a path, or the bytes of a .tflite file, was expected") from None


def read_bytes(model: ModelSource) -> bytes:
    """Return the bytes of a model.

    Args:
        model: A path, bytes or a buffer.

    Raises:
        OSError: The file cannot be read.
    """
    return ModelContent(model).bytes
