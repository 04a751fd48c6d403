"""Whether a thread may use OpenCL, and how Ctrl-C ends the wait for calls of a driver that take long.

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
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import get_ident, main_thread
from time import monotonic, perf_counter, sleep
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from tflgpu.errors import DeviceError

if TYPE_CHECKING:
    from concurrent.futures import Future


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

P = ParamSpec("P")
T = TypeVar("T")

COMPILER = "The device's compiler cannot be stopped: it goes on in the background, and the process ends after it."
RUN = "The device cannot be stopped: it goes on with the run in the background, and the process ends after it."

# Seconds of a run from which on the next one is to be interruptible. To start a thread takes some 0.1 ms.
LONG = 0.1

# This much work (``cpu_work``) takes any device less than a second.
LITTLE_WORK = 1_000_000_000


def interruptible(call: Callable[[], T]) -> T:
    """Return or raise the outcome of a call that Ctrl-C may interrupt.

    Python answers signals in the main thread and between two of its own instructions. So the main thread waits here for
    another one, which makes the call; Ctrl-C raises KeyboardInterrupt at once.

    Args:
        call: May go on after the interrupt.
    """
    if not _may_wait():
        return call()
    answer: Future[T] = _new_answer()
    return _awaited(call, answer, COMPILER)


def _may_wait() -> bool:
    """Whether this is the thread that answers signals, and another thread can be started."""
    return threading.current_thread() is threading.main_thread() and starts_threads()


def _new_answer() -> Future[Any]:
    from concurrent.futures import Future

    return Future()


def _awaited(call: Callable[[], T], answer: Future[T], note: str) -> T:
    """Return what a thread that makes the call answers. note: for the KeyboardInterrupt of a user who interrupts it."""
    try:
        threading.Thread(target=_answer, args=(call, answer), name="tflgpu-driver").start()
        return answer.result()
    except KeyboardInterrupt as interrupt:
        interrupt.add_note(note)
        raise


def _answer(call: Callable[[], T], answer: Future[T]) -> None:
    if not answer.set_running_or_notify_cancel():
        return
    try:
        answer.set_result(call())
    except BaseException as error:
        answer.set_exception(error)


class InterruptibleRuns:
    """Makes the runs of one model: long ones so that Ctrl-C ends the wait for them. Not thread-safe.

    A run is expected to be long if the last one was, the first one by its work.
    are_short: whether the next one needs no thread and no :meth:`settle`. Who makes it without :meth:`make` sets this
    to False if it took longer than ``LONG``.
    """

    def __init__(self, work: int) -> None:
        self.are_short = work <= LITTLE_WORK
        self._left: Future[Any] | None = None  # the run that was interrupted, which may go on

    def make(self, run: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Return or raise the outcome of a run that Ctrl-C may interrupt, if it is not short.

        Args:
            run: May go on after the interrupt.
            *arguments: Those of ``run``.
            **named: Those of ``run``.
        """
        begun = perf_counter()
        if not self.are_short and _may_wait():
            answer: Future[T] = _new_answer()
            self._left = answer
            result = _awaited(partial(run, *arguments, **named), answer, RUN)
            self._left = None
        else:
            result = run(*arguments, **named)
        self.are_short = perf_counter() - begun <= LONG
        return result

    def settle(self) -> None:
        """Wait for a run that was interrupted: its memory is in use."""
        if self._left is not None and not self._left.cancel():
            self._left.exception()
        self._left = None
