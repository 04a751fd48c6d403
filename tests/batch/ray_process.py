"""A script of tests that starts Ray, in a process group of its own, which ends with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

# Ray takes a third of the memory, and gives its workers the lowest priority: beside other tests they get no core, and
# Serve gives a proxy up that does not answer in five seconds.
SETTINGS = {
    "RAY_ADDRESS": "local",  # not a cluster that happens to run here
    "RAY_DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES": str(100 << 20),
    "RAY_worker_niceness": "0",
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",
    "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "60",
}


def output_of(module: str, folder: Path) -> str:
    """The output of ``python -m module folder``. Fails with its messages if the module fails."""
    settings = os.environ | SETTINGS
    command = [sys.executable, "-m", module, str(folder)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=settings, start_new_session=True
    ) as process:
        try:
            out, messages = process.communicate(timeout=500)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, messages
    return out
