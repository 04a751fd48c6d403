"""Lists, checks and empties a cache for the command line, and packs it into a bundle."""

from __future__ import annotations

import json
import mmap
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tflgpu.artifact.cache import payload
from tflgpu.artifact.cache.disk_cache import Cache
from tflgpu.artifact.cache.key import NAME, entry_name
from tflgpu.artifact.cache.payload import UnreadableError
from tflgpu.artifact.cache.store import Directory, Entry

if TYPE_CHECKING:
    from tflgpu.artifact.cache.bundle import Bundle, Sign, Written


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
