"""Whether a thread may use OpenCL: not in a process that was forked, and not beside the end of Python.

Drivers do not survive a fork: their threads are missing in the child, and PoCL, for one, waits for them for ever. So a
process that was forked from one in which OpenCL was in use may not use it. One that was forked before may.

Python ends daemon threads where they come back from C, which ends the process by SIGABRT if they come back through C++,
as pyopencl and LiteRT are. And drivers take down what such a thread uses. So the end waits for threads that are inside,
and lets no other thread in. To compile a large model on a busy machine takes minutes; a thread that is inside longer
hangs, and then the process ends without the rest of its end.
"""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from contextlib import suppress
from threading import get_ident, main_thread
from time import monotonic, sleep
from types import TracebackType

from tflgpu.errors import DeviceError

# Seconds that the end of Python waits for other threads.
PATIENCE = 900.0

HUNG = 1  # the exit code if they do not come out

inside: list[int] = []  # the threads that use OpenCL, once for each ``with``

is_restricted = False  # whether :func:`check` may raise

_in_use = False

_is_orphan = False  # forked from a process in which OpenCL was in use

_ending: int | None = None  # the thread that ends Python


def is_orphan() -> bool:
    """Whether this process was forked from one in which OpenCL was in use, so that what it has is the parent's."""
    return _is_orphan


def starts_threads() -> bool:
    """Whether Python still starts threads: not while it ends, from when it has waited for all but daemons."""
    return main_thread().is_alive()


def check() -> None:
    """Do the check of :class:`Using`, and leave again before it raises."""
    thread = get_ident()
    if _is_orphan:
        inside.remove(thread)
        raise DeviceError(
            "this process was forked from one that had used OpenCL, whose drivers do not survive that; start processes "
            'by multiprocessing\'s method "spawn" or "forkserver", or use tflgpu first in the child'
        )
    if thread != _ending and inside.count(thread) == 1:  # else this goes on with what the end waits for
        inside.remove(thread)
        raise SystemExit


class Using:
    """OpenCL is used while this is open, by the thread that opened it.

    Entering raises DeviceError if OpenCL was in use when this process was forked. While another thread ends Python it
    raises SystemExit, which ends this one without a word.
    """

    def __enter__(self) -> None:
        global _in_use
        _in_use = True
        inside.append(get_ident())
        if is_restricted:
            check()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        inside.remove(get_ident())


class Helping(Using):
    """The same in a thread that helps one inside, which the end of Python waits for."""

    def __enter__(self) -> None:
        inside.append(get_ident())


def _end() -> None:
    """Wait for the other threads inside."""
    global _ending, is_restricted
    if _is_orphan:
        return
    _ending = get_ident()
    is_restricted = True
    late = monotonic() + PATIENCE
    while set(inside) - {_ending} and monotonic() < late:
        sleep(1e-3)
    if set(inside) - {_ending}:
        with suppress(OSError, ValueError, AttributeError):  # there may be no such streams, or they are closed
            print("tflgpu: a thread does not come back from a driver; the process ends without it", file=sys.stderr)
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(HUNG)


def _forked() -> None:
    global _is_orphan, is_restricted
    _is_orphan = _in_use
    is_restricted = is_restricted or _in_use


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_forked)

# The last one is called first: the end of what finalizers end, such as compilers' processes, which threads still need.
weakref.finalize(_end, int)
atexit.register(_end)
