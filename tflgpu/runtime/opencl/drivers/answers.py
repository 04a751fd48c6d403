"""Ask a driver's library for its devices in a process that may crash or hang in place of this one."""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tflgpu.processes.server_process import can_run, signal_name
from tflgpu.runtime.opencl.drivers import ask_driver

# A driver that opens eight GPUs takes some seconds.
SECONDS = 20.0


class Answer(NamedTuple):
    """devices: how many. fault: why there are none, as the end of a sentence that begins with the library's name."""

    devices: int
    fault: str = ""


@cache
def answer_of(library: str, seconds: float = SECONDS) -> Answer:
    """Return what a library says of itself. It is asked once in a process.

    Where no process can be started, as in a program without a Python interpreter of its own, nothing is risked.

    Args:
        library: Its path.
        seconds: How long to wait for the answer.
    """
    import subprocess  # where there is no such library, a start does without

    script = Path(ask_driver.__file__)
    if not can_run(script):
        return Answer(0, "cannot be tried first in a process of its own")
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(script), library],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Answer(0, f"did not answer within {seconds:g} s")
    except OSError as error:
        return Answer(0, f"cannot be tried first in a process of its own: {error.strerror}")
    text = os.fsdecode(done.stdout)
    if done.returncode < 0:
        return Answer(0, f"crashes when it is loaded ({signal_name(-done.returncode)})")
    if text.isdecimal():
        return Answer(int(text), "" if int(text) else "finds no device")
    return Answer(0, text or f"ended its process with exit code {done.returncode}")
