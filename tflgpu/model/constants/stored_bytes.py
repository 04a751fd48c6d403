"""Where a file has the bytes of a constant, or of a custom operator's options: in its flatbuffer, or after it.

A flatbuffer ends before 2 GB, so that what is larger lies after it, and the flatbuffer names its place in the file.
Whatever reads a file asks here for these bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tflgpu.errors import ModelError

Bytes = bytes | bytearray | memoryview

# Converters write an offset of 0 or 1 for bytes that are not after the flatbuffer.
LAST_PLACEHOLDER = 1

NOTHING = np.empty(0, np.uint8)


def stored_bytes(file: Bytes, what: str, inside: Any, offset: int, size: int) -> NDArray[np.uint8]:
    """Return a view of bytes of the file, or those inside the flatbuffer; empty if there are neither.

    LiteRT looks into the flatbuffer first, too.

    Args:
        file: The whole file.
        what: The name of what has these bytes, for messages.
        inside: The vector of the flatbuffer; 0 or None for an absent one.
        offset: The begin of the bytes after the flatbuffer.
        size: Their number.

    Raises:
        ModelError: They are not in the file.
    """
    if isinstance(inside, np.ndarray) and inside.size:
        return inside
    if offset <= LAST_PLACEHOLDER:
        return NOTHING
    if offset + size > len(file):
        raise ModelError(
            f"the model is truncated: {what} lies in bytes {offset} to {offset + size}, behind the flatbuffer, and the "
            f"file has {len(file)}; is it complete?"
        )
    return np.frombuffer(file, np.uint8, size, offset)


def buffer_bytes(file: Bytes, index: int, buffer: Any) -> NDArray[np.uint8]:
    """Return the bytes of a buffer.

    Args:
        file: The whole file.
        index: The buffer's, for messages.
        buffer: A table Buffer of the package ``tflite``.

    Raises:
        ModelError: They are not in the file.
    """
    return stored_bytes(file, f"buffer {index}", buffer.DataAsNumpy(), buffer.Offset(), buffer.Size())
