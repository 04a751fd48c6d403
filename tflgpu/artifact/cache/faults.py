"""Saying once that the cache is not what it should be.

Nothing that happens to the disk may fail a compilation: whoever meets a fault says so here and goes on as if the
entry were missing.
"""

from __future__ import annotations

import threading
import warnings

from tflgpu.errors import CacheWarning

_reported: set[str] = set()

_lock = threading.Lock()


def warn_once(cause: str, message: str) -> None:
    """A CacheWarning, unless this process has already had one for the same ``cause``."""
    with _lock:
        if cause in _reported:
            return
        _reported.add(cause)
    warnings.warn(f"{message} (further faults of this kind are not reported)", CacheWarning, stacklevel=3)
