"""Programs in processes of their own, and how Ctrl-C ends the process of the command line while it imports.

:mod:`tflgpu` imports this module before all others, and it imports next to nothing: Python would raise
KeyboardInterrupt in the middle of an import, and print where. :class:`tflgpu.cli.usage.Verbs` then answers Ctrl-C
itself.

A server is a file of this package as a program in a process of its own, which answers requests by its standard input
and output. A fork would copy the threads of OpenCL's drivers, and multiprocessing would import the user's main module.
"""

from __future__ import annotations

import os
import signal
import sys
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path
    from typing import IO


def _is_command() -> bool:
    """Whether this process was started as ``tflgpu`` or ``python -m tflgpu``; its workers were not."""
    first, given = (getattr(sys, "argv", None) or [""])[0], sys.orig_argv
    if first == "-m":  # as long as Python looks for the module
        return "tflgpu" in given[given.index("-m") + 1 :][:1]
    return os.path.basename(first).removesuffix(".exe") == "tflgpu" and first in given


IS_COMMAND = _is_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler

if IS_COMMAND:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def answer_interrupts() -> None:
    """Let Ctrl-C raise KeyboardInterrupt from now on, as in any program of Python."""
    if IS_COMMAND and signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


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
