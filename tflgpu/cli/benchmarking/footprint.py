"""Memory of this process."""

from __future__ import annotations

import sys
from pathlib import Path

# The process's own high-water mark on Linux. That of getrusage also counts the process that started this one.
STATUS = Path("/proc/self/status")


def peak_resident_bytes() -> int | None:
    """Return the most memory that this process has had resident; None where the system does not tell."""
    try:
        marks = [line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM:")]
    except OSError:
        marks = []
    if marks:
        return 1024 * int(marks[0].split()[1])
    try:
        import resource  # not on Windows
    except ImportError:
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
