"""A file of this package as a program in a process of its own, which answers requests by its standard input and output.

A fork would copy the threads of OpenCL's drivers, and multiprocessing would import the user's main module.
"""

from __future__ import annotations

import os
import signal
import sys
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess


def can_run(script: Path) -> bool:
    """Whether there is an interpreter and the file: a frozen program has neither.

    Args:
        script: A module of Python.
    """
    return bool(sys.executable) and not getattr(sys, "frozen", False) and script.is_file()


def end_in_words(code: int) -> str:
    """Return how a process ended, as a predicate such as ``crashed (SIGSEGV)``.

    Args:
        code: The exit code; a negative one is the number of a signal.
    """
    if code >= 0:
        return f"ended its process with exit code {code}"
    return f"crashed ({signal_name(-code)})"


def signal_name(number: int) -> str:
    """Return the name of a signal, such as SIGSEGV.

    Args:
        number: The signal's.
    """
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class ServerProcess:
    """A process of Python, which ends with this one at the latest. Raises OSError if it cannot be started.

    requests, replies: its standard input and output.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """command: the interpreter's options, the script and its arguments."""
        import subprocess  # a warm start does without

        self._popen = subprocess.Popen(
            [sys.executable, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
        assert self._popen.stdin is not None and self._popen.stdout is not None
        self.requests: IO[bytes] = self._popen.stdin
        self.replies: IO[bytes] = self._popen.stdout
        self.end = weakref.finalize(self, _end, self._popen, os.getpid())

    @property
    def is_there(self) -> bool:
        """Whether the process has not ended."""
        return self._popen.poll() is None

    def kill(self) -> None:
        """End the process at once."""
        self._popen.kill()

    def wait(self) -> int:
        """Wait for its end. Returns the exit code."""
        return self._popen.wait()


def _end(process: subprocess.Popen[bytes], owner: int) -> None:
    if os.getpid() != owner:  # a fork of the process that started it
        return
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):  # for what it has not read
                pipe.close()
