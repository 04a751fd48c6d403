"""The buffer TFLITE_METADATA of a .tflite file -> how inputs are normalized, and which packed files name classes.

No package that is kept up brings the schema of this flatbuffer, so the few fields that matter are read here by their
numbers.

https://github.com/tensorflow/tflite-support, tensorflow_lite_support/metadata/metadata_schema.fbs
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from typing import Any

import tflite
from flatbuffers import encode, number_types, packer
from flatbuffers.table import Table

from tflgpu.errors import ModelError
from tflgpu.model.constants.stored_bytes import buffer_bytes
from tflgpu.model.metadata.declarations import ModelMetadata, Normalization, TensorMetadata
from tflgpu.model.reader import DECODER_FAILURES
from tflgpu.model.text import decoded

BUFFER = b"TFLITE_METADATA"
IDENTIFIER = b"M001"

# Elements of one vector. A damaged length must not take minutes.
LONGEST_VECTOR = 4096

_NORMALIZATION = 1  # in the union ProcessUnitOptions
_LABELS = (2, 3)  # of AssociatedFileType: names along an axis, and names of an output's values


def read_metadata(model: bytes) -> ModelMetadata:
    """Raises ModelError for metadata that are damaged."""
    try:
        data = _buffer(model)
        if data is None:
            return ModelMetadata()
        if data[4:8] != IDENTIFIER:
            raise ValueError(f"bytes 4 to 8 are {data[4:8]!r}, where {IDENTIFIER!r} belongs")
        root = _Fields(data, encode.Get(packer.uoffset, data, 0))
        main = next(root.tables(3), None)
        return ModelMetadata(*(tuple(map(_tensor, main.tables(n))) for n in (2, 3))) if main else ModelMetadata()
    except DECODER_FAILURES as failure:
        raise ModelError(f"the model's metadata are damaged ({type(failure).__name__}: {failure})") from failure


def _buffer(model: bytes) -> bytes | None:
    file = tflite.Model.GetRootAs(model, 0)
    for entry in map(file.Metadata, range(min(file.MetadataLength(), LONGEST_VECTOR))):
        if entry.Name() == BUFFER:
            return buffer_bytes(model, entry.Buffer(), file.Buffers(entry.Buffer())).tobytes() or None
    return None


def _tensor(fields: _Fields) -> TensorMetadata:
    normalization = None
    for unit in fields.tables(4):
        if unit.byte(0) == _NORMALIZATION and (options := unit.table(1)):
            normalization = Normalization(options.floats(0), options.floats(1))
            numbers = normalization.mean + normalization.std
            if not (normalization.mean and normalization.std and all(map(isfinite, numbers))):
                raise ValueError(f"a normalization has mean {normalization.mean} and std {normalization.std}")
            if 0 in normalization.std:
                raise ValueError("a normalization divides by a std of 0")
    files = [(f.text(3), f.text(0)) for f in fields.tables(6) if f.byte(2) in _LABELS]
    english = sorted(files, key=lambda file: file[0] not in ("", "en"))
    return TensorMetadata(normalization, tuple(name for _, name in english))


class _Fields:
    """A table of the flatbuffer, its fields by their numbers; an absent one is empty. Raises DECODER_FAILURES."""

    def __init__(self, data: bytes, position: int) -> None:
        self._data, self._table = data, Table(data, position)

    def byte(self, field: int) -> int:
        place = self._place(field)
        return int(self._table.Get(number_types.Uint8Flags, place)) if place else 0

    def text(self, field: int) -> str:
        place = self._place(field)
        return decoded(self._table.String(place)) if place else ""

    def table(self, field: int) -> _Fields | None:
        place = self._place(field)
        return _Fields(self._data, self._table.Indirect(place)) if place else None

    def tables(self, field: int) -> Iterator[_Fields]:
        return (_Fields(self._data, self._table.Indirect(place)) for place in self._elements(field))

    def floats(self, field: int) -> tuple[float, ...]:
        return tuple(float(self._table.Get(number_types.Float32Flags, place)) for place in self._elements(field))

    def _place(self, field: int) -> int:
        """In the buffer; 0 for an absent field."""
        offset: Any = self._table.Offset(4 + 2 * field)
        return int(self._table.Pos + offset) if offset else 0

    def _elements(self, field: int) -> Iterator[int]:
        """The places of a vector's elements, of 4 bytes each."""
        offset = self._table.Offset(4 + 2 * field)
        length = self._table.VectorLen(offset) if offset else 0
        if length > LONGEST_VECTOR:
            raise ValueError(f"a vector claims {length} elements")
        start = self._table.Vector(offset) if length else 0
        return (start + 4 * i for i in range(length))
