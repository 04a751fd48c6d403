"""Calls of a driver that take long, and how Ctrl-C ends the wait for them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from tflgpu.runtime.opencl.process import starts_threads

if TYPE_CHECKING:  # a warm start does without
    from concurrent.futures import Future

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
