"""The cache as a compilation uses it: it reads from several places, writes to one, and warns where it fails."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from errno import ENAMETOOLONG
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from tflgpu.artifact.cache import payload
from tflgpu.artifact.cache.directory import check_private, default_directory, expanded
from tflgpu.artifact.cache.faults import warn_once
from tflgpu.artifact.cache.key import FileStamp, Key, source_key
from tflgpu.artifact.cache.payload import Payload, UnreadableError
from tflgpu.artifact.cache.store import Directory
from tflgpu.errors import CacheDirectoryError

if TYPE_CHECKING:
    from tflgpu.artifact.cache.bundle import Bundle
    from tflgpu.artifact.cache.signature import Proof


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
