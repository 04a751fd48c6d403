"""Where the cache is, and whether it can be trusted: its entries are programs that will be run.

A place is opened level by level, each from the one before it, so that no folder can be exchanged meanwhile. Below the
place itself no link is followed. Opening never waits, whatever stands there: a FIFO would, for its writer.

A fault of the disk must not fail a compilation: the code that meets one warns once, and goes on as if the entry were
missing.
"""

from __future__ import annotations

import errno
import os
import stat
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tflgpu.artifact.cache.payload import UnreadableError
from tflgpu.errors import CacheDirectoryError, CacheWarning
from tflgpu.model.text import printable

# Flags that Windows does not have, where folders of a user are private by their access lists.
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)
_FOLDER = getattr(os, "O_DIRECTORY", 0)
_BINARY = getattr(os, "O_BINARY", 0)


def fault_of(found: os.stat_result) -> str | None:
    """Return why a user other than this one and root could have written a file or folder; None if none could.

    Args:
        found: What the system says of it.
    """
    if not hasattr(os, "geteuid"):
        return None
    if found.st_uid not in (0, os.geteuid()):
        return f"belongs to another user (user id {found.st_uid})"
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"can be written by other users (mode {stat.S_IMODE(found.st_mode):04o})"
    return None


def open_own(place: Path, names: Sequence[str] = ()) -> int:
    """Return a descriptor of a regular file that only this user can have written.

    Args:
        place: The file itself, or a folder.
        names: Lead to the file below the folder; no name may be a link.

    Raises:
        FileNotFoundError: There is none.
        NotADirectoryError: A folder on the way is none.
        OSError: It cannot be opened.
        UnreadableError: The file, or a folder on the way to it, is not this user's own or something else than a file.
    """
    if os.open not in os.supports_dir_fd:
        return os.open(place.joinpath(*names), os.O_RDONLY | _BINARY)
    with ExitStack() as stack:
        levels: list[tuple[str, int]] = []
        for number in range(len(names) + 1):
            flags = os.O_RDONLY | (_FOLDER if number < len(names) else _NO_WAIT)
            level = _open_below(levels[-1][1], names[number - 1], flags) if number else os.open(place, flags)
            stack.callback(os.close, level)
            levels.append(("/".join(names[:number]), level))
        for name, level in levels:
            found = os.fstat(level)
            if (fault := fault_of(found)) is not None:
                where = f"lies in {name or place}, which {fault}" if level != levels[-1][1] else fault
                raise UnreadableError("foreign", where)
        if not stat.S_ISREG(found.st_mode):
            raise UnreadableError("damaged", "is no regular file")
        return os.dup(level)


def _open_below(folder: int, name: str, flags: int) -> int:
    try:
        return os.open(name, flags | _NO_LINK, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UnreadableError("foreign", "is a link, and the cache follows none") from error
        raise


def check_own_folder(folder: Path) -> None:
    """Accept a folder, and no link to one, that only this user and root can write.

    Args:
        folder: It must exist.

    Raises:
        OSError: Others can write it, or it is no folder.
    """
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(f"{folder} is no folder; the cache follows no links")
    if (fault := fault_of(found)) is not None:
        raise PermissionError(f"{folder} {fault}")


def is_folder(path: Path) -> bool:
    """Whether this is a folder, and no link to one."""
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False


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


_reported: dict[str, object] = {}


def warn_once(cause: str, message: str) -> None:
    """Give a CacheWarning, unless this process has already given one for the same cause.

    Args:
        cause: A key; it is not shown.
        message: The text.
    """
    this = object()
    if _reported.setdefault(cause, this) is not this:  # one step: no lock, for which a signal handler could wait
        return
    shown = printable(message)  # it may quote names in a cache or bundle
    warnings.warn(f"{shown} (further faults of this kind are not reported)", CacheWarning, stacklevel=3)
