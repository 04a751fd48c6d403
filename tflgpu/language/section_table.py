"""Where the parts of a .litertlm file lie: a table of sections, a flatbuffer at the file's beginning."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import BinaryIO

from tflgpu.errors import ModelError
from tflgpu.model.flat_table import FlatTable

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
    """Return the sections of a .litertlm file.

    Args:
        file: Is read from its begin on.
        size: The file's length in bytes.

    Raises:
        ModelError: It has another format or version, or its table points outside of the file.
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
    try:
        metadata = FlatTable.root(file.read(end - _HEADER_BEGIN)).table(1)
        sections = [_section(each) for each in metadata.tables(0)] if metadata else []
    except ValueError as error:
        raise ModelError(f"the .litertlm file is damaged: {error}") from error
    for section in sections:
        if not end <= section.begin <= section.end <= size:
            raise ModelError(
                f"the .litertlm file is damaged or not complete: a section lies at {section.begin} to {section.end}, "
                f"and it has {size} bytes"
            )
    return tuple(sections)


def _section(table: FlatTable) -> Section:
    number = table.number(3, "B")
    items = {}
    for item in table.tables(0):
        value = item.table(2)
        if value is not None and item.number(1, "B") == _TEXT:
            items[item.text(0)] = value.text(0)
    kind = TYPES[number] if number < len(TYPES) else f"type {number}"
    return Section(kind, table.number(1, "Q"), table.number(2, "Q"), items)
