"""A script of tests that starts Ray, in a process group of its own, which ends with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

# Bytes. Ray would take a third of the memory.
STORE = 100 << 20


def output_of(module: str, folder: Path) -> str:
    """What ``python -m module folder`` prints. Fails with its messages if it does."""
    environment = os.environ | {"RAY_DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES": str(STORE)}
    command = [sys.executable, "-m", module, str(folder)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    ) as process:
        try:
            out, messages = process.communicate(timeout=500)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, messages
    return out
