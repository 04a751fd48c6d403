"""Tables of flatbuffers by the numbers of their fields, and where a file has the bytes of a constant.

A flatbuffer ends before 2 GB, so that what is larger lies after it, and the flatbuffer names its place in the file.
Whatever reads a file asks here for these bytes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tflgpu.errors import ModelError
from tflgpu.model.text import decoded

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


@dataclass(frozen=True)
class FlatTable:
    """A table at a place of a flatbuffer. A number that is absent is 0, a text and a vector are empty.

    Every access is checked. Raises ValueError for what lies outside of the flatbuffer.
    """

    data: Bytes
    place: int

    @classmethod
    def root(cls, data: Bytes) -> FlatTable:
        """Return the root table of a flatbuffer.

        Args:
            data: The flatbuffer; it may be damaged.
        """
        return cls(data, _number(data, 0, "I"))

    @classmethod
    def of(cls, table: Any) -> FlatTable:
        """Return a table that the package ``tflite`` has found.

        Args:
            table: An object of that package, or its ``flatbuffers.table.Table``.
        """
        found = getattr(table, "_tab", table)
        return cls(found.Bytes, found.Pos)

    def field(self, field: int) -> int | None:
        """Return the place of a field in the file; None if it is absent.

        Args:
            field: The field's number in the schema.
        """
        vtable = self.place - _number(self.data, self.place, "i")
        slot = 4 + 2 * field
        offset = _number(self.data, vtable + slot, "H") if slot < _number(self.data, vtable, "H") else 0
        return self.place + offset if offset else None

    def number(self, field: int, form: str) -> int:
        """Return a number; 0 if it is absent.

        Args:
            field: The field's number in the schema.
            form: Its format, as :mod:`struct` names it.
        """
        place = self.field(field)
        return 0 if place is None else int(_number(self.data, place, form))

    def text(self, field: int) -> str:
        """Return a text, printable; empty if it is absent.

        Args:
            field: The field's number in the schema.

        Raises:
            ValueError: It is longer than the file.
        """
        place = self._target(field)
        if place is None:
            return ""
        size = _number(self.data, place, "I")
        if size > len(self.data) - place - 4:
            raise ValueError("a text in its table is longer than the table")
        return decoded(bytes(self.data[place + 4 : place + 4 + size]))

    def table(self, field: int) -> FlatTable | None:
        """Return a table; None if it is absent.

        Args:
            field: The field's number in the schema.
        """
        place = self._target(field)
        return None if place is None else FlatTable(self.data, place)

    def tables(self, field: int) -> list[FlatTable]:
        """Return a vector of tables.

        Args:
            field: The field's number in the schema.
        """
        return [FlatTable(self.data, place + _number(self.data, place, "I")) for place in self._elements(field)]

    def floats(self, field: int) -> tuple[float, ...]:
        """Return a vector of floats.

        Args:
            field: The field's number in the schema.
        """
        return tuple(_number(self.data, place, "f") for place in self._elements(field))

    def _target(self, field: int) -> int | None:
        """Return the place that a field refers to."""
        place = self.field(field)
        return None if place is None else place + _number(self.data, place, "I")

    def _elements(self, field: int) -> range:
        """Return the places of a vector's elements, of 4 bytes each."""
        place = self._target(field)
        if place is None:
            return range(0)
        count = _number(self.data, place, "I")
        if count * 4 > len(self.data):
            raise ValueError(f"its table claims {count} entries")
        return range(place + 4, place + 4 + 4 * count, 4)


def _number(data: Bytes, place: int, form: str) -> Any:
    if not 0 <= place <= len(data) - struct.calcsize(form):
        raise ValueError("its table refers to a place outside of it")
    return struct.unpack_from(f"<{form}", data, place)[0]
