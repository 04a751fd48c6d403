"""Warnings about the cache, each given once.

A fault of the disk must not fail a compilation: the code that meets one warns here, and goes on as if the entry were
missing.
"""

from __future__ import annotations

import warnings

from tflgpu.errors import CacheWarning
from tflgpu.model.text import printable

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
