"""The cache as a compilation uses it, and as the command line lists, checks, empties and packs it."""

from __future__ import annotations

import json
import logging
import mmap
import time
from collections.abc import Collection, Mapping, Sequence
from errno import ENAMETOOLONG
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from numpy.typing import NDArray

from tflgpu.artifact.cache import payload
from tflgpu.artifact.cache.directory import check_private, default_directory, expanded, warn_once
from tflgpu.artifact.cache.key import NAME, FileStamp, Key, entry_name, source_key
from tflgpu.artifact.cache.payload import Payload, UnreadableError
from tflgpu.artifact.cache.store import Directory, Entry
from tflgpu.errors import CacheDirectoryError

if TYPE_CHECKING:
    from tflgpu.artifact.cache.bundle import Bundle, Proof, Sign, Written


LOGGER = logging.getLogger(__name__)

DEFAULT_LIMIT = 2 << 30

BUNDLE_SUFFIX = ".bundle"

# A file that changed less than this before it was hashed can change again without a new time stamp.
RACY_NANOSECONDS = 2_000_000_000


class Cache:
    """Entries in bundles and directories: the first match is read, the first writable directory gets new entries.

    locations: paths; a file, or a name that ends in ``.bundle``, is a bundle. By default the directory that the
        environment variable TFLGPU_CACHE_DIR names, else the platform's cache directory.
    limit: bytes that the directory may take; the entries unused for longest are deleted first.
    writable: whether new entries are stored.
    proof: what every bundle has to prove before anything of it is used.

    Raises CacheDirectoryError if other users can write to a location, BundleError if a bundle does not prove what it
    has to, ValueError if there is something to prove and no bundle. All other faults of the disk, here or later, are a
    CacheWarning, and a miss or an entry that is not stored.
    """

    def __init__(
        self,
        locations: Sequence[Path] | None = None,
        *,
        limit: int = DEFAULT_LIMIT,
        writable: bool = True,
        proof: Proof | None = None,
    ) -> None:
        self.places: list[Directory | Bundle] = []
        self._target: Directory | None = None
        bundles = 0
        for path in filter(_can_exist, _expanded(locations)):
            if path.is_file() or path.suffix == BUNDLE_SUFFIX:
                bundles += 1
                self._add_bundle(path, proof)
            else:
                self._add_directory(Directory(path, limit), writable)
        if proof is not None and not bundles:
            raise ValueError("Options.cache_files has a bundle_key or bundle_digest, and its path names no bundle")
        self._wants_target = writable and any(isinstance(place, Directory) for place in self.places)

    @property
    def is_writable(self) -> bool:
        """Whether it keeps what is stored."""
        return self._target is not None

    def load(self, key: Key) -> Payload | None:
        """Return the entry for ``key``, checked; None if no place has an undamaged one."""
        for place in self.places:
            try:
                buffer = place.open(key.name)
                if buffer is not None:
                    found = payload.read(buffer, key.text)
                    place.mark_used(key.name)
                    LOGGER.debug("cache hit: %s/%s", place.path, key.name)
                    return found
            except UnreadableError as error:
                warn_once(error.cause, f"{place.path}/{key.name} {error}; it is not used, and compiled anew")
            except (OSError, ValueError) as error:
                warn_once("read", f"the cache {place.path} cannot be read: {error}")
        LOGGER.debug("cache miss: %s", key.name)
        return None

    def store(self, key: Key, tensors: Mapping[str, NDArray[Any]], metadata: Mapping[str, Any]) -> None:
        """Store an entry; it replaces one of the same key. Faults of the disk are a CacheWarning.

        Args:
            key: The entry's.
            tensors: Arrays by name.
            metadata: In types of JSON.

        Raises:
            ValueError: The format cannot hold the tensors or the metadata.
            TypeError: The same, by a type.
        """
        payload.check(tensors)
        if self._target is None:
            if self._wants_target:
                warn_once("store", "no directory of the cache can be written: nothing new is kept")
            return
        try:
            self._target.put(key, tensors, metadata)
            LOGGER.debug("cache store: %s/%s", self._target.path, key.name)
        except (OSError, CacheDirectoryError) as error:
            warn_once("store", f"the cache {self._target.path} cannot be written: {error}")

    def known_content(self, token: int, model: Path) -> str | None:
        """Return the content hash of a model file from :meth:`remember_content`.

        Args:
            token: The caller's, under which it was remembered.
            model: The file.

        Returns:
            None if there is none, or the file has changed since.
        """
        try:
            key = source_key(token, FileStamp.of(model.stat()))
        except OSError:
            return None
        found = self.load(key)
        return None if found is None else str(found.metadata["content"])

    def remember_content(self, token: int, stamp: FileStamp, content: str) -> None:
        """Store the content hash of a model file.

        Args:
            token: The caller's, under which it will be looked up.
            stamp: Of the open file, taken before it was read.
            content: The hash.
        """
        if time.time_ns() - max(stamp.modified, stamp.changed) > RACY_NANOSECONDS:
            self.store(source_key(token, stamp), {}, {"content": content})

    def _add_bundle(self, path: Path, proof: Proof | None) -> None:
        from tflgpu.artifact.cache.bundle import Bundle  # without bundles zipfile is not needed

        try:
            self.places.append(Bundle(path, proof))
        except UnreadableError as error:
            warn_once(error.cause, f"{path} {error}; it is not used")
        except OSError as error:
            warn_once("read", f"the bundle {path} cannot be read: {error}")

    def _add_directory(self, directory: Directory, writable: bool) -> None:
        if writable and self._target is None and directory.writable():
            self._target = directory
        check_private(directory.path)
        self.places.append(directory)


def _expanded(locations: Sequence[Path] | None) -> list[Path]:
    """Return the places to look at; none without a home directory that they need."""
    try:
        return [default_directory()] if locations is None else [expanded(path) for path in locations]
    except FileNotFoundError as error:
        warn_once("store", f"{error}; nothing is kept")
        return []


def _can_exist(path: Path) -> bool:
    """Whether the file system takes a name, whatever it is of; warns if it does not."""
    try:
        path.lstat()
    except ValueError as error:  # a NUL byte, or characters that names cannot have
        fault: Exception = error
    except OSError as error:
        if error.errno != ENAMETOOLONG:
            return True
        fault = error
    else:
        return True
    warn_once("name", f"the cache {path} cannot be used: {fault}")
    return False


class Finding(NamedTuple):
    """An entry, the fields of its key (None if unreadable), and what is wrong with it (None if nothing is).

    model: name of the file that was compiled; None if it was none, and for other entries.
    """

    entry: Entry
    key: Mapping[str, Any] | None
    fault: str | None
    model: str | None = None


def survey(cache: Cache) -> list[Finding]:
    """Every entry of every place, with its checksum checked, and the other files of each directory."""
    found = [_examine(place, entry) for place in cache.places for entry in place.entries()]
    for place in cache.places:
        if isinstance(place, Directory):
            found += [Finding(entry, None, "is not named like an entry") for entry in place.strangers()]
    return found


def evict(
    cache: Cache, *, token: int | None = None, unused_seconds: float = 0.0, limit: int | None = None
) -> list[Entry]:
    """Delete entries of the cache's directories, and return the deleted ones. Bundles stay as they are.

    Args:
        cache: Its directories.
        token: Only entries of this model; None for all.
        unused_seconds: Only entries that were not used for so long.
        limit: Delete these, the longest unused first, until the directory takes no more bytes; None deletes all of
            them.
    """
    removed = []
    for place in cache.places:
        if not isinstance(place, Directory):
            continue
        latest = time.time() - unused_seconds
        chosen = [e for e in place.entries() if (token is None or _token(e) == token) and e.used <= latest]
        if limit is not None:
            gone = place.shrink(limit, chosen)
        else:
            gone = [entry for entry in chosen if place.remove(entry.name)]
        if gone:
            place.refresh_index()
        removed += gone
    return removed


def pack(cache: Cache, bundle: Path, names: Collection[str] | None = None, sign: Sign | None = None) -> Written:
    """Write undamaged entries into a bundle.

    Args:
        cache: Has the entries.
        bundle: The file; it is replaced as a whole.
        names: Entries to write; None for all.
        sign: Makes a signature; None to leave the bundle unsigned.

    Raises:
        OSError: The file cannot be written.
    """
    from tflgpu.artifact.cache.bundle import write_bundle

    contents: dict[str, mmap.mmap | memoryview] = {}
    for place in cache.places:
        for entry in place.entries():
            if names is None or entry.name in names:
                buffer = place.open(entry.name)
                if buffer is not None and _examine(place, entry).fault is None:
                    contents.setdefault(entry.name, buffer)
    return write_bundle(bundle, contents, sign)


def _examine(place: Directory | Bundle, entry: Entry) -> Finding:
    try:
        buffer = place.open(entry.name)
        if buffer is None:
            return Finding(entry, None, "vanished")
        found = payload.read(buffer)
        named = entry_name(found.key)
        model = found.metadata.get("model")
    except UnreadableError as error:
        return Finding(entry, None, str(error))
    except (OSError, ValueError, KeyError, TypeError) as error:
        return Finding(entry, None, f"cannot be read: {error}")
    fault = None if named == entry.name else "is the entry of another key"
    return Finding(entry, json.loads(found.key), fault, model if isinstance(model, str) else None)


def _token(entry: Entry) -> int | None:
    """Return the model token in an entry's name; None if it has none."""
    named = NAME.fullmatch(entry.name)
    return int(named["token"], 16) if named and named["token"] else None
