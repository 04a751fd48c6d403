"""Locks that the processes of one machine share. The system frees them however a process ends, by SIGKILL too."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from filelock import FileLock

from tflgpu.artifact.cache.directory import check_own_folder, make_private


def node_lock(name: str) -> FileLock:
    """Return a lock of this user on this machine, not acquired; a context manager.

    Its file lies in the system's temporary folder and not in the cache, which other machines may share.

    Args:
        name: All processes that use the same name exclude each other.

    Raises:
        OSError: There is no such folder of this user's own.
    """
    user = os.getuid() if hasattr(os, "getuid") else "locks"  # Windows has a temporary folder for each user
    folder = Path(tempfile.gettempdir()) / f"tflgpu-{user}"
    make_private(folder)
    check_own_folder(folder)
    return FileLock(folder / f"{name}.lock", thread_local=False)
