"""Ctrl-C ends the process within a second, or says what it waits for."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

from tflgpu.cli.console import messages

# Seconds that the work may take to come to an end before the user is told.
PATIENCE = 0.7

WAITING = "waiting for the driver to return; Ctrl-C again ends at once"

# As shells count: 128 and the number of the signal.
EXIT_CODE = 128 + signal.SIGINT


@contextmanager
def answering_interrupts() -> Iterator[None]:
    """While this is open, Ctrl-C ends the process, as it ends what shells run: by the signal.

    Python itself would first wait for the threads in which a driver compiles. And it answers a signal only between two
    of its own instructions, so that a thread has to look whether a call of a driver is in the way. Nothing is done
    where signals are not for Python: in other threads than the main one, and in what a shell runs in the background.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(reader,), name="tflgpu-interrupt", daemon=True).start()
    try:
        yield
    except KeyboardInterrupt:
        _end()
    finally:
        signal.set_wakeup_fd(before)
        os.close(writer)


def _watch(reader: int) -> None:
    """See to the interrupts until the pipe is closed."""
    told: threading.Timer | None = None
    with os.fdopen(reader, "rb", buffering=0) as numbers:
        while number := numbers.read(1):
            if number[0] != signal.SIGINT:
                continue
            if told is not None:  # the second one
                messages.show_cursor()
                os._exit(EXIT_CODE)
            told = threading.Timer(PATIENCE, messages.print, [WAITING])
            told.daemon = True
            told.start()


def _end() -> NoReturn:
    with suppress(OSError):
        sys.stdout.flush()
    messages.print("interrupted")
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.raise_signal(signal.SIGINT)
    os._exit(EXIT_CODE)  # where the signal does not end a process
