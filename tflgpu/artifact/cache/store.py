"""One cache directory: entries as files, replaced by rename and evicted by last use."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from tflgpu.artifact.cache import payload
from tflgpu.artifact.cache.directory import (
    check_own_folder,
    check_private,
    is_folder,
    make_private,
    open_own,
    warn_once,
)
from tflgpu.artifact.cache.key import FORMAT_FOLDER, NAME, Key

# Writing an entry takes seconds: the writer of a temporary file of this age no longer runs.
STALE_SECONDS = 3600.0


class Entry(NamedTuple):
    """An entry of a directory or a bundle.

    place: path of the directory or bundle. used: when it was stored or last read, in seconds since 1970; 0 in a bundle.
    """

    place: Path
    name: str
    bytes: int
    used: float


class Directory:
    """The entries below ``path``. limit: bytes that they may take."""

    def __init__(self, path: Path, limit: int) -> None:
        self.path, self.limit = path, limit
        self._entries = path / FORMAT_FOLDER
        self._temporary = self._entries / "tmp"
        self._index = self._entries / "index"

    def writable(self) -> bool:
        """Whether entries can be written here; makes the directory if it is missing."""
        try:
            make_private(self.path)
        except OSError:
            return False
        return os.access(self.path, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids)

    def open(self, name: str) -> mmap.mmap | None:
        """Return the entry's file, mapped; None if there is none.

        Args:
            name: The entry's path below the format's folder.

        Raises:
            OSError: The file cannot be opened.
            UnreadableError: It is empty or not this user's own.
        """
        try:
            descriptor = open_own(self.path, (FORMAT_FOLDER, *name.split("/")))
        except (FileNotFoundError, NotADirectoryError):
            return None
        with open(descriptor, "rb", buffering=0) as file:
            if os.fstat(descriptor).st_size == 0:
                raise payload.UnreadableError("damaged", "is empty")
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def mark_used(self, name: str) -> None:
        """Set the file's time of modification to now. Other programs can change its time of access.

        Args:
            name: The entry's path below the format's folder.
        """
        with suppress(OSError):  # read-only, so nothing is evicted; or deleted
            os.utime(self._entries / name, follow_symlinks=os.utime not in os.supports_follow_symlinks)

    def put(self, key: Key, tensors: Mapping[str, NDArray[Any]], metadata: Mapping[str, Any]) -> None:
        """Write or replace an entry, then evict others beyond the limit.

        Args:
            key: The entry's.
            tensors: Arrays by name, which have passed :func:`tflgpu.artifact.cache.payload.check`.
            metadata: In types of JSON.

        Raises:
            OSError: The file cannot be written.
            CacheDirectoryError: Other users can write to a folder.
        """
        import shutil  # not needed by a warm start
        import tempfile

        target = self._entries / key.name
        for folder in (self.path, self._entries, self._temporary, target.parent):
            make_private(folder)
            if folder is self.path:
                check_private(folder)  # another user may have replaced it since it was opened
            else:
                check_own_folder(folder)
        self._remove_stale()
        handle, name = tempfile.mkstemp(dir=self._temporary)
        os.close(handle)
        written = Path(name)
        try:
            size = payload.write(written, key.text, tensors, metadata)
            if size > self.limit:
                warn_once("limit", f"an entry of {size} bytes is larger than the cache's limit of {self.limit}")
                return
            if is_folder(target):  # a rename would not replace it
                shutil.rmtree(target)
            written.replace(target)
        finally:
            written.unlink(missing_ok=True)
        self._account(key.name, size)

    def entries(self) -> Iterator[Entry]:
        """All entries. One that is deleted meanwhile is left out."""
        return (entry for entry in self._files() if NAME.fullmatch(entry.name))

    def strangers(self) -> Iterator[Entry]:
        """Files among the entries that are not named like entries."""
        return (entry for entry in self._files() if not NAME.fullmatch(entry.name))

    def remove(self, name: str) -> bool:
        """Delete an entry; a process that has it mapped can still read it.

        Args:
            name: The entry's path below the format's folder.

        Returns:
            False if it could not be deleted.
        """
        try:
            (self._entries / name).unlink(missing_ok=True)
        except OSError:
            return False
        return True

    def shrink(self, limit: int, candidates: Iterable[Entry]) -> list[Entry]:
        """Delete entries, the longest unused first, until all entries of the directory fit a limit.

        Args:
            limit: Bytes.
            candidates: Entries that may be deleted.

        Returns:
            The deleted ones.
        """
        excess = sum(entry.bytes for entry in self.entries()) - limit
        removed = []
        for entry in sorted(candidates, key=lambda entry: entry.used):
            if excess <= 0:
                break
            if self.remove(entry.name):
                excess -= entry.bytes
                removed.append(entry)
        return removed

    def refresh_index(self) -> None:
        """Make the index anew from the files."""
        from tflgpu.artifact.cache.index import IndexUnavailableError, open_index

        with suppress(IndexUnavailableError), open_index(self._index) as (index, _):
            index.replace((entry.name, entry.bytes) for entry in self.entries())

    def _account(self, name: str, size: int) -> None:
        """Add a new entry to the index, and evict others if the sum of sizes exceeds the limit.

        Without an index the sizes of the files are added up instead.
        """
        from tflgpu.artifact.cache.index import IndexUnavailableError, open_index

        try:
            with open_index(self._index) as (index, new):
                if new:
                    index.replace((entry.name, entry.bytes) for entry in self.entries())
                index.record(name, size)
                if index.volume() > self.limit:
                    self._make_room(name)
                    index.replace((entry.name, entry.bytes) for entry in self.entries())
        except IndexUnavailableError as error:
            warn_once(
                "index", f"the index of the cache {self.path} cannot be used, its files are counted instead: {error}"
            )
            self._make_room(name)

    def _make_room(self, newest: str) -> None:
        """Shrink to the limit, but keep the entry that was just written."""
        self.shrink(self.limit, [entry for entry in self.entries() if entry.name != newest])

    def _files(self) -> Iterator[Entry]:
        kinds = (
            ("kernels", "models", "probes", "sources", "trials", "tunings", "units") if is_folder(self._entries) else ()
        )
        for kind in (kind for kind in kinds if is_folder(self._entries / kind)):
            with suppress(OSError), os.scandir(self._entries / kind) as files:
                for file in files:
                    with suppress(OSError):
                        found = file.stat(follow_symlinks=False)
                        yield Entry(self.path, f"{kind}/{file.name}", found.st_size, found.st_mtime)

    def _remove_stale(self) -> None:
        oldest = time.time() - STALE_SECONDS
        with os.scandir(self._temporary) as found:
            for entry in found:
                with suppress(OSError):
                    if entry.stat(follow_symlinks=False).st_mtime < oldest:
                        os.unlink(entry.path)
