"""The buffer TFLITE_METADATA of a .tflite file: how inputs are normalized, and packed files that name classes.

No package that is kept up brings the schema of this flatbuffer, so the few fields that matter are read here by their
numbers.

https://github.com/tensorflow/tflite-support, tensorflow_lite_support/metadata/metadata_schema.fbs
"""

from __future__ import annotations

import zipfile
import zlib
from io import BytesIO
from math import isfinite

import tflite

from tflgpu.errors import ModelError
from tflgpu.model.declared_metadata import ModelMetadata, Normalization, TensorMetadata
from tflgpu.model.flat_table import FlatTable, buffer_bytes
from tflgpu.model.reader import DECODER_FAILURES
from tflgpu.model.text import printable

LONGEST_FILE = 16 << 20  # bytes; an archive can claim any number


def read_packed_file(model: bytes, name: str) -> bytes:
    """Return a file that is packed into a model.

    Args:
        model: The bytes of the model's file.
        name: The file's name in the metadata.

    Raises:
        ModelError: It is not there, damaged, or longer than 16 MB.
    """
    try:
        with zipfile.ZipFile(BytesIO(model)) as archive, archive.open(name) as file:
            content = file.read(LONGEST_FILE + 1)
    except KeyError:
        raise ModelError(f"the model's metadata name a file {name!r}, which is not packed into the model") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError, OSError) as error:
        raise ModelError(f"{name!r}, which the model's metadata name, cannot be unpacked: {error}") from error
    if len(content) > LONGEST_FILE:
        raise ModelError(f"{name!r}, which the model's metadata name, is longer than {LONGEST_FILE} bytes")
    return content


BUFFER = b"TFLITE_METADATA"
IDENTIFIER = b"M001"

MOST_ENTRIES = 4096  # of the file's metadata. A damaged length must not take minutes.

_NORMALIZATION = 1  # in the union ProcessUnitOptions
_LABELS = (2, 3)  # of AssociatedFileType: names along an axis, and names of an output's values


def read_metadata(model: bytes) -> ModelMetadata:
    """Return the metadata of a model; empty ones if it has none.

    Args:
        model: The bytes of the file.

    Raises:
        ModelError: The metadata are damaged.
    """
    try:
        data = _buffer(model)
        if data is None:
            return ModelMetadata()
        if data[4:8] != IDENTIFIER:
            raise ValueError(f"bytes 4 to 8 are {data[4:8]!r}, where {IDENTIFIER!r} belongs")
        main = next(iter(FlatTable.root(data).tables(3)), None)
        return ModelMetadata(*(tuple(map(_tensor, main.tables(n))) for n in (2, 3))) if main else ModelMetadata()
    except DECODER_FAILURES as failure:
        raise ModelError(f"the model's metadata are damaged ({type(failure).__name__}: {failure})") from failure


def _buffer(model: bytes) -> bytes | None:
    file = tflite.Model.GetRootAs(model, 0)
    for entry in map(file.Metadata, range(min(file.MetadataLength(), MOST_ENTRIES))):
        if entry.Name() == BUFFER:
            return buffer_bytes(model, entry.Buffer(), file.Buffers(entry.Buffer())).tobytes() or None
    return None


def _tensor(fields: FlatTable) -> TensorMetadata:
    normalization = None
    for unit in fields.tables(4):
        if unit.number(0, "B") == _NORMALIZATION and (options := unit.table(1)):
            normalization = Normalization(options.floats(0), options.floats(1))
            numbers = normalization.mean + normalization.std
            if not (normalization.mean and normalization.std and all(map(isfinite, numbers))):
                raise ValueError(f"a normalization has mean {normalization.mean} and std {normalization.std}")
            if 0 in normalization.std:
                raise ValueError("a normalization divides by a std of 0")
    files = [(f.text(3), f.text(0)) for f in fields.tables(6) if f.number(2, "B") in _LABELS]
    english = sorted(files, key=lambda file: file[0] not in ("", "en"))
    return TensorMetadata(normalization, tuple(name for _, name in english))


def labels_in_file(model: bytes) -> list[str]:
    """Return the labels of the first output that has any; empty if there are none.

    Args:
        model: The bytes of the file.

    Raises:
        ModelError: The metadata or a packed file are damaged.
    """
    names = [name for output in read_metadata(model).outputs for name in output.labels]
    if not names:
        return []
    try:
        lines = read_packed_file(model, names[0]).decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise ModelError(f"{names[0]!r}, which the model's metadata name, is no text in UTF-8: {error}") from error
    return [printable(line) for line in lines]
