"""The index of a cache directory: the size of each entry, kept by diskcache.

The files are the truth. The index only tells whether their sizes exceed the limit, without a look at each file. It is
made anew from the files whenever it is missing or damaged. Reading an entry does not open it.

diskcache pickles values that are not text, bytes or numbers, and unpickles a row that is marked as a pickle
(CVE-2025-69872). ``LedgerDisk`` does neither, whatever the database contains.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import diskcache
from diskcache.core import DBNAME, MODE_RAW

from tflgpu.artifact.cache.directory import check_own_folder, fault_of, make_private

# Seconds to wait for another process, which holds the database for about a millisecond.
TIMEOUT = 2.0


class IndexUnavailableError(Exception):
    """The index cannot be used now: another process holds it, or its directory cannot be written."""


class LedgerDisk(diskcache.Disk):  # type: ignore[misc]  # diskcache carries no types
    """Text keys and sizes in bytes, all in the database: no pickles and no further files."""

    def put(self, key: object) -> tuple[str, bool]:
        """Return the key as the table stores it.

        Args:
            key: The name of an entry.

        Raises:
            TypeError: It is no text.
        """
        if type(key) is not str:
            raise TypeError(f"a key of the index is {key!r}; it must be text")
        return key, True

    def get(self, key: object, raw: object) -> str:
        """Return the key that the table has stored.

        Args:
            key: The name of an entry.
            raw: Whether it is stored as it is; any key of this index is.

        Raises:
            ValueError: It is not stored as text.
        """
        if not raw or type(key) is not str:
            raise ValueError("the index holds a key that is not text")
        return key

    def store(self, value: object, read: bool, key: object = None) -> tuple[int, int, None, int]:
        """Return a row whose ``size`` is the value, so that diskcache's ``volume`` adds them up.

        Args:
            value: The size of an entry in bytes.
            read: Whether the value is a file, which no value of this index is.
            key: Not used.

        Raises:
            TypeError: The value is no size.
        """
        if type(value) is not int or read:
            raise TypeError(f"a value of the index is {value!r}; it must be a size in bytes")
        return value, MODE_RAW, None, value

    def fetch(self, mode: object, filename: object, value: object, read: bool) -> int:
        """Return the size that a row of the table has.

        Args:
            mode: The kind of the value, which has to be a number.
            filename: Not used.
            value: The size in bytes.
            read: Not used.

        Raises:
            ValueError: The value is no size.
        """
        if mode != MODE_RAW or type(value) is not int:
            raise ValueError("the index holds a value that is not a size")
        return value

    def remove(self, file_path: object) -> None:
        """Do nothing: rows of this index name no files. A row that does was forged to delete that file.

        Args:
            file_path: Not used.
        """


class Index:
    """An open index. An error in a method leaves :func:`open_index` as IndexUnavailableError."""

    def __init__(self, ledger: diskcache.Cache) -> None:
        self._ledger = ledger

    def record(self, name: str, size: int) -> None:
        """Note the size of an entry.

        Args:
            name: The entry's path below the format's folder.
            size: Bytes.
        """
        self._ledger.set(name, size)

    def volume(self) -> int:
        """Bytes of all entries and of the database itself."""
        return int(self._ledger.volume())

    def replace(self, sizes: Iterable[tuple[str, int]]) -> None:
        """Record these sizes in place of all others.

        Args:
            sizes: Names and bytes of all entries.
        """
        with self._ledger.transact():
            self._ledger.clear()
            for name, size in sizes:
                self.record(name, size)


@contextmanager
def open_index(folder: Path) -> Iterator[tuple[Index, bool]]:
    """Return the index of a folder, and whether it is new and empty.

    A damaged database is deleted, so that the next call makes a new one.

    Args:
        folder: Belongs to the index alone.

    Raises:
        IndexUnavailableError: The database is damaged, locked or not this user's own.
    """
    try:
        make_private(folder)
        _check_files(folder)
        new = not (folder / DBNAME).exists()
        if not new:
            _probe(folder / DBNAME)
        # No waiting for the disk, because the files are the truth. No eviction by diskcache: it deletes ten rows at a
        # time, which would empty a cache of few, large entries.
        with diskcache.Cache(
            str(folder), TIMEOUT, LedgerDisk, eviction_policy="none", cull_limit=0, sqlite_synchronous=0
        ) as ledger:
            yield Index(ledger), new
    except Exception as error:
        # diskcache makes attributes, pragmas and arguments of what it reads: a damaged database can raise any error.
        if not _is_busy(error):
            _discard(folder)
        raise IndexUnavailableError(repr(error)) from error


def _check_files(folder: Path) -> None:
    """Raise an error if something in the folder is no file of the user's own; sqlite would wait for a FIFO's writer."""
    check_own_folder(folder)
    with os.scandir(folder) as found:
        for entry in found:
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:  # another process closed the database, and sqlite deleted what it no longer needs
                continue
            if not stat.S_ISREG(status.st_mode) or fault_of(status) is not None:
                raise PermissionError(f"{entry.path} is no file of this user's own")


def _probe(database: Path) -> None:
    """Raise an error if the database is locked for TIMEOUT or damaged; diskcache would wait 60 seconds for a lock."""
    with closing(sqlite3.connect(database, timeout=TIMEOUT, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")


def _is_busy(error: Exception) -> bool:
    code = getattr(error, "sqlite_errorcode", None)
    return isinstance(error, diskcache.Timeout) or code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _discard(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):  # a file or a link has the folder's name
        folder.unlink()
