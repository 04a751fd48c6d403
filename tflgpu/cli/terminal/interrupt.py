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

# Seconds until the main thread is woken, in case another one got the signal, and until the user is told.
NUDGE, PATIENCE = 0.05, 0.7

WAITING = "waiting for the driver to return; Ctrl-C again ends at once"
STOPPING = "stopping; Ctrl-C again ends at once"

# The exit code that shells give: 128 and the number of the signal.
EXIT_CODE = 128 + signal.SIGINT


@contextmanager
def answering_interrupts() -> Iterator[None]:
    """While this is open, Ctrl-C ends the process, as it ends what shells run: by the signal.

    Python itself would first wait for the threads in which a driver compiles. And it answers a signal only between two
    of its own instructions, so that a thread has to look whether a call of a driver is in the way. Nothing is done
    where signals are not for Python: in other threads than the main one, in what a shell runs in the background, and
    on systems without signals for threads.
    """
    main = threading.current_thread() is threading.main_thread()
    mine = main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not mine or not hasattr(signal, "pthread_kill"):
        yield
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    answered = threading.Event()

    def answer(*_: object) -> None:
        if not answered.is_set():
            answered.set()
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, answer)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(reader, answered), name="tflgpu-interrupt", daemon=True).start()
    try:
        yield
    except KeyboardInterrupt:
        _end()
    finally:
        signal.set_wakeup_fd(before)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.close(writer)


def _watch(reader: int, answered: threading.Event) -> None:
    """See to the interrupts until the pipe is closed; it has the number of each signal, ours too."""
    told = threading.Event()

    def tell() -> None:
        told.set()
        messages.print(STOPPING if answered.is_set() else WAITING)

    timer = threading.Timer(PATIENCE, tell)
    timer.daemon = True
    with os.fdopen(reader, "rb", buffering=0) as numbers:
        while number := numbers.read(1):
            if number[0] != signal.SIGINT:
                continue
            if told.is_set():
                messages.show_cursor()
                os._exit(EXIT_CODE)
            if (
                timer.ident is None
            ):  # the first one; until the user is told, others may be handed on by a program around
                timer.start()
                if not answered.wait(NUDGE):
                    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def _end() -> NoReturn:
    with suppress(OSError):
        sys.stdout.flush()
    messages.print("interrupted")
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.raise_signal(signal.SIGINT)
    os._exit(EXIT_CODE)  # where the signal does not end a process
