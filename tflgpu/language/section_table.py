"""Where the parts of a .litertlm file lie: a table of sections, a flatbuffer at the file's beginning."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import BinaryIO

from tflgpu.errors import ModelError

MAGIC = b"LITERTLM"

MAJOR_VERSION = 1  # a file of another one has another layout

_VERSIONS, _HEADER_END, _HEADER_BEGIN = 8, 24, 32  # bytes from the file's beginning

_LARGEST_HEADER = 1 << 26  # bytes

# Types of sections by their numbers: AnySectionDataType of LiteRT-LM's schema (litertlm_header_schema.fbs). An earlier
# revision of it has the executor's metadata at 8.
TYPES = (
    "none",
    "data",
    "deprecated",
    "model",
    "sentencepiece",
    "metadata",
    "tokenizers",
    "weights",
    "embedding metadata",
    "executor metadata",
    "speech metadata",
    "recognition metadata",
)

_TEXT = 9  # the number of texts in the union of values


@dataclass(frozen=True)
class Section:
    """One part of the file. items: texts that describe it, such as ``model_type``."""

    type: str
    begin: int
    end: int
    items: Mapping[str, str]


def read_sections(file: BinaryIO, size: int) -> tuple[Section, ...]:
    """The sections of a .litertlm file of ``size`` bytes.

    Raises ModelError for another format, another version, or a table that points outside of the file.
    """
    head = file.read(_HEADER_BEGIN)
    if len(head) < _HEADER_BEGIN or head[: len(MAGIC)] != MAGIC:
        raise ModelError(f"not a .litertlm file: it does not begin with {MAGIC.decode()}")
    major, minor, patch = struct.unpack_from("<III", head, _VERSIONS)
    if major != MAJOR_VERSION:
        raise ModelError(f"the .litertlm file has version {major}.{minor}.{patch}; {MAJOR_VERSION}.x can be read")
    (end,) = struct.unpack_from("<Q", head, _HEADER_END)
    if not _HEADER_BEGIN + 8 <= end <= min(size, _HEADER_BEGIN + _LARGEST_HEADER):
        raise ModelError(f"the .litertlm file is damaged: its table ends at {end}, and it has {size} bytes")
    table = _Table.root(file.read(end - _HEADER_BEGIN))
    metadata = table.table(1)
    sections = [_section(each) for each in metadata.tables(0)] if metadata else []
    for section in sections:
        if not end <= section.begin <= section.end <= size:
            raise ModelError(
                f"the .litertlm file is damaged or not complete: a section lies at {section.begin} to {section.end}, "
                f"and it has {size} bytes"
            )
    return tuple(sections)


def _section(table: _Table) -> Section:
    number = table.number(3, "B")
    items = {}
    for item in table.tables(0):
        value = item.table(2)
        if value is not None and item.number(1, "B") == _TEXT:
            items[item.text(0)] = value.text(0)
    kind = TYPES[number] if number < len(TYPES) else f"type {number}"
    return Section(kind, table.number(1, "Q"), table.number(2, "Q"), items)


@dataclass(frozen=True)
class _Table:
    """A table of a flatbuffer, its fields by their numbers. Every access is checked."""

    data: bytes
    place: int

    @classmethod
    def root(cls, data: bytes) -> _Table:
        return cls(data, _number(data, 0, "I"))

    def _field(self, index: int) -> int | None:
        fields = self.place - _number(self.data, self.place, "i")
        slot = 4 + 2 * index
        offset = _number(self.data, fields + slot, "H") if slot < _number(self.data, fields, "H") else 0
        return self.place + offset if offset else None

    def _target(self, index: int) -> int | None:
        """The place that a field refers to."""
        place = self._field(index)
        return None if place is None else place + _number(self.data, place, "I")

    def number(self, index: int, form: str) -> int:
        """A number in the form of :mod:`struct`, 0 if it is absent."""
        place = self._field(index)
        return 0 if place is None else _number(self.data, place, form)

    def table(self, index: int) -> _Table | None:
        place = self._target(index)
        return None if place is None else _Table(self.data, place)

    def tables(self, index: int) -> list[_Table]:
        place = self._target(index)
        count = 0 if place is None else _number(self.data, place, "I")
        if place is None or not count:
            return []
        if count * 4 > len(self.data):
            raise ModelError(f"the .litertlm file is damaged: its table claims {count} entries")
        places = range(place + 4, place + 4 + 4 * count, 4)
        return [_Table(self.data, at + _number(self.data, at, "I")) for at in places]

    def text(self, index: int) -> str:
        place = self._target(index)
        if place is None:
            return ""
        size = _number(self.data, place, "I")
        if size > len(self.data) - place - 4:
            raise ModelError("the .litertlm file is damaged: a text in its table is longer than the table")
        return self.data[place + 4 : place + 4 + size].decode("utf-8", "replace")


def _number(data: bytes, place: int, form: str) -> int:
    if not 0 <= place <= len(data) - struct.calcsize(form):
        raise ModelError("the .litertlm file is damaged: its table refers to a place outside of it")
    return int(struct.unpack_from(f"<{form}", data, place)[0])
