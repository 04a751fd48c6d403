"""Where the cache is, and whether it can be trusted: its entries are programs that will be run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tflgpu.artifact.cache.own_files import fault_of
from tflgpu.errors import CacheDirectoryError

ENVIRONMENT = "TFLGPU_CACHE_DIR"


def default_directory() -> Path:
    """Return the directory that the environment variable TFLGPU_CACHE_DIR names, else the platform's cache directory.

    Raises FileNotFoundError if it would be below the home directory, and the system knows none.
    """
    named = os.environ.get(ENVIRONMENT)
    if named:
        return expanded(Path(named))
    import platformdirs

    with _home_needed():
        return platformdirs.user_cache_path("tflgpu", appauthor=False).expanduser()  # some versions leave a ~


def expanded(path: Path) -> Path:
    """``path`` with the home directory in place of a ``~``. Raises FileNotFoundError if the system knows none."""
    with _home_needed():
        return path.expanduser()


@contextmanager
def _home_needed() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise FileNotFoundError(
            "the cache would be below the home directory, and this user has none: choose another place with "
            f"Options(cache_files=CacheFiles(path=...)) or the environment variable {ENVIRONMENT}"
        ) from error


def check_private(path: Path) -> None:
    """Raise CacheDirectoryError if a user other than this one and root could have written to ``path``.

    A path that does not exist, or that cannot be examined, passes: nothing will be read from it.
    """
    try:
        found = path.stat()
    except OSError:
        return
    fault = fault_of(found)
    if fault is None:
        return
    remedy = "change its owner" if "belongs" in fault else "chmod go-w it"
    raise CacheDirectoryError(
        f"the cache {path} {fault}, and the programs that it holds would be run as yours: {remedy}, or choose another "
        f"with Options(cache_files=CacheFiles(path=...)) or the environment variable {ENVIRONMENT}"
    )


def make_private(path: Path) -> None:
    """Make the directory, with mode 0700, and missing ones above it. Raises OSError."""
    if not path.is_dir():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
