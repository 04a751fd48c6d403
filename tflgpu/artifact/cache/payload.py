"""One entry as a file: safetensors whose last 16 bytes are a checksum of all bytes before them.

``cache_format/README.md`` specifies the layout. The ``safetensors`` library writes the files. This module reads them,
because the library copies tensors out of its mapping; the format (8 bytes of header length, JSON, data) is simple.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from tflgpu.artifact.cache.key import FORMAT_VERSION, canonical_json
from tflgpu.errors import catching_panics

# The only item of the header's __metadata__: the library writes several in random order, but equal entries must be
# equal files.
DESCRIPTION = "tflgpu-cache"

CHECKSUM = "~xxh3_128"

CHECKSUM_BYTES = 16

PART = 1 << 22  # bytes of a file that are read at once

# Most bytes of the JSON, which takes up to 30 times as much memory as it is parsed. The largest one of the models that
# tflgpu is tested with has 260 kB; one of 10,000 operators has some MB.
LARGEST_HEADER = 16 << 20

# Without BOOL: the library puts it after bytes, where the checksum has to be.
# Bytes of a file that is hashed only to say more exactly why it is not used.
LARGEST_EXPLAINED = 4 * LARGEST_HEADER

DTYPES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
    "U64": np.dtype("<u8"),
    "U32": np.dtype("<u4"),
    "U16": np.dtype("<u2"),
    "U8": np.dtype("u1"),
}

_STORABLE = frozenset(DTYPES.values())

# Errors that reading JSON of the wrong shape can raise.
_MALFORMED = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)

Buffer = mmap.mmap | memoryview


class UnreadableError(Exception):
    """An entry that must not be used. cause: "damaged" or "format"."""

    def __init__(self, cause: str, message: str) -> None:
        self.cause = cause
        super().__init__(message)


class Payload(NamedTuple):
    """An entry as read. ``tensors`` are read-only views of the mapped file, and keep it mapped."""

    key: str
    metadata: Mapping[str, Any]
    tensors: Mapping[str, NDArray[Any]]


def check(tensors: Mapping[str, NDArray[Any]]) -> None:
    """Accept tensors that the format can hold.

    Args:
        tensors: Arrays by name.

    Raises:
        ValueError: A name or a type is not allowed, or a name would hide the checksum.
    """
    for name, tensor in tensors.items():
        if not (name.isascii() and name.isprintable()) or name.startswith("~") or name in ("", "__metadata__"):
            raise ValueError(f"{name!r} cannot name a tensor: printable ASCII that does not begin with ~ can")
        if tensor.dtype.newbyteorder("<") not in _STORABLE:
            raise ValueError(f"tensor {name} is of type {tensor.dtype}, which the cache cannot store")


def write(path: Path, key: str, tensors: Mapping[str, NDArray[Any]], metadata: Mapping[str, Any]) -> int:
    """Write an entry, make it durable, and return its size in bytes.

    Args:
        path: A new file. After an error it may be broken.
        key: Canonical JSON.
        tensors: Must have passed :func:`check`.
        metadata: In types of JSON.

    Raises:
        OSError: The file cannot be written.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    description = {"version": FORMAT_VERSION, "key": json.loads(key), "metadata": dict(metadata)}
    dense = {n: np.asarray(t, t.dtype.newbyteorder("<"), order="C") for n, t in tensors.items()}
    dense[CHECKSUM] = np.zeros(CHECKSUM_BYTES, np.uint8)
    try:
        with catching_panics():
            save_file(dense, path, {DESCRIPTION: canonical_json(description)})
    except (SafetensorError, RuntimeError) as error:  # the tensors are checked, so only input and output can fail
        raise OSError(str(error)) from error
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        try:
            _, entries, _ = _header(mapped)
        except ValueError as error:  # too long
            raise OSError(str(error)) from error
        if _extent(entries[CHECKSUM])[1] != max(end for _, end in map(_extent, entries.values())):
            raise OSError("this version of safetensors does not put the checksum last")
        checksum = _checksum_of_file(file)
        file.seek(-CHECKSUM_BYTES, os.SEEK_END)
        file.write(checksum)
        file.flush()
        os.fsync(file.fileno())
        return file.tell()


def read(buffer: Buffer, key: str | None = None) -> Payload:
    """Return an entry after all checks, its tensors as views.

    Args:
        buffer: The whole file.
        key: Text of the key that the entry must have; None for any.

    Raises:
        UnreadableError: The entry is damaged, has another format or another key.
    """
    try:
        description, entries, start = _header(buffer)
        _check_version(description)  # entries of another format can have their checksum elsewhere, or none
        data = memoryview(buffer)[start:]
        _check_extents(map(_extent, entries.values()), len(data))
        tensors = {name: _view(entry, data) for name, entry in entries.items() if name != CHECKSUM}
        found = Payload(canonical_json(description["key"]), dict(description["metadata"]), tensors)
    except _MALFORMED as error:  # before the checksum: a file without a head can have a TiB
        if len(buffer) <= LARGEST_EXPLAINED and _has_checksum(buffer):
            raise UnreadableError("damaged", f"is not an entry of this cache: {error!r}") from error
        raise _damaged() from error
    if not _has_checksum(buffer):
        raise _damaged()
    if key is not None and found.key != key:
        raise UnreadableError("damaged", "is the entry of another key")
    return found


def _has_checksum(buffer: Buffer) -> bool:
    return len(buffer) >= CHECKSUM_BYTES and buffer[-CHECKSUM_BYTES:] == _checksum(buffer)


def _damaged() -> UnreadableError:
    return UnreadableError("damaged", "is damaged: its checksum does not fit its content")


def _checksum_of_file(file: BinaryIO) -> bytes:
    """Return the same as :func:`_checksum`, a part of the file at a time: a mapping would keep all of it in memory."""
    left, hashes = file.seek(-CHECKSUM_BYTES, os.SEEK_END), xxhash.xxh3_128()
    file.seek(0)
    while left and (part := file.read(min(left, PART))):
        hashes.update(part)
        left -= len(part)
    return hashes.digest()


def _checksum(buffer: Buffer) -> bytes:
    with memoryview(buffer) as whole:
        return xxhash.xxh3_128_digest(whole[:-CHECKSUM_BYTES])


def _header(buffer: Buffer) -> tuple[dict[str, Any], dict[str, Any], int]:
    """Return the description, the tensors' header entries, and the offset of the data. Raises one of _MALFORMED."""
    length = int.from_bytes(buffer[:8], "little")
    start = 8 + length
    if start > len(buffer) or length > LARGEST_HEADER:
        raise ValueError(f"a header of {length} bytes in a file of {len(buffer)}")
    entries = json.loads(bytes(buffer[8:start]))
    return json.loads(entries.pop("__metadata__")[DESCRIPTION]), entries, start


def _extent(entry: Mapping[str, Any]) -> tuple[int, int]:
    begin, end = entry["data_offsets"]
    return begin, end


def _check_extents(extents: Iterable[tuple[int, int]], size: int) -> None:
    """Raise ValueError unless tensors follow each other from the first byte of the data to the last."""
    place = 0
    for begin, end in sorted(extents):
        if not place == begin <= end:
            raise ValueError(f"a tensor at {begin}:{end}, where {place} was expected")
        place = end
    if place != size:
        raise ValueError(f"tensors of {place} bytes in {size}")


def _view(entry: Mapping[str, Any], data: memoryview) -> NDArray[Any]:
    begin, end = _extent(entry)
    shape = tuple(entry["shape"])
    if any(type(dimension) is not int or dimension < 0 for dimension in shape):
        raise ValueError(f"a tensor of shape {list(shape)}")
    flat: NDArray[Any] = np.frombuffer(data[begin:end], DTYPES[entry["dtype"]])
    return flat.reshape(shape)


def _check_version(description: Mapping[str, Any]) -> None:
    """Raise UnreadableError for an entry in another format. Every format has a version; all else may differ."""
    version = int(description["version"])
    if version != FORMAT_VERSION:
        raise UnreadableError(
            "format", f"is of cache format version {version}, and this tflgpu reads version {FORMAT_VERSION}"
        )
