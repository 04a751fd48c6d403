"""Many entries in one read-only file: a zip archive without compression, so that entries are mapped, not copied."""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from tflgpu.artifact.cache.key import FORMAT_FOLDER, FORMAT_VERSION, NAME
from tflgpu.artifact.cache.payload import UnreadableError
from tflgpu.artifact.cache.store import Entry

SUFFIX = ".bundle"

_ALIGNMENT = 64

_PADDING_ID = 0xD935  # the extra field that Android's zipalign pads with

_LOCAL_HEADER = struct.Struct("<26xHH")  # 30 bytes; the last fields are the lengths of name and extra field


class Bundle:
    """An open bundle. Raises OSError, or UnreadableError if the file is not a bundle."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file, zipfile.ZipFile(file) as archive:
                members = archive.infolist()
                self._buffer = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:  # ValueError: an empty file
            raise UnreadableError("damaged", f"is not a bundle: {error}") from error
        prefix = f"{FORMAT_FOLDER}/"
        names = {m.filename.removeprefix(prefix): m for m in members if m.filename.startswith(prefix)}
        self._members = {name: member for name, member in names.items() if NAME.fullmatch(name)}
        if members and not self._members:
            found = sorted({m.filename.partition("/")[0] for m in members})
            raise UnreadableError(
                "format", f"holds entries of format {', '.join(found)}, and this tflgpu reads v{FORMAT_VERSION}"
            )

    def open(self, name: str) -> memoryview | None:
        """The entry's bytes in the mapped bundle; None if it has no such entry. Raises UnreadableError."""
        member = self._members.get(name)
        if member is None:
            return None
        header = member.header_offset
        if not 0 <= header <= len(self._buffer) - _LOCAL_HEADER.size:
            raise UnreadableError("damaged", "lies outside of the bundle")
        begin = header + _LOCAL_HEADER.size + sum(_LOCAL_HEADER.unpack_from(self._buffer, header))
        return self._buffer[begin : begin + member.file_size]

    def mark_used(self, name: str) -> None:
        """Does nothing: a bundle is never written, and nothing is evicted from it."""

    def entries(self) -> Iterator[Entry]:
        """All entries, in the order of their names."""
        for name, member in sorted(self._members.items()):
            yield Entry(self.path, name, member.file_size, 0.0)


def write_bundle(path: Path, entries: Mapping[str, mmap.mmap | memoryview]) -> int:
    """Write entries (content by name) as a bundle and return its size in bytes. Raises OSError.

    Equal entries give equal bundles, byte by byte.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.", suffix=".tmp")
    written = Path(name)
    try:
        with open(handle, "wb") as file:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
                for entry, content in sorted(entries.items()):
                    member = zipfile.ZipInfo(f"{FORMAT_FOLDER}/{entry}")
                    begin = file.tell() + _LOCAL_HEADER.size + len(member.filename) + 4
                    padding = -begin % _ALIGNMENT
                    member.extra = struct.pack("<HH", _PADDING_ID, padding) + bytes(padding)
                    archive.writestr(member, content)
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
        written.chmod(0o644)  # every user can read it: a bundle is shipped with programs
        written.replace(path)
    finally:
        written.unlink(missing_ok=True)
    return size
