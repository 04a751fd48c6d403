"""Calls of a driver that take long, and how Ctrl-C ends the wait for them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:  # a warm start does without
    from concurrent.futures import Future

T = TypeVar("T")

COMPILER = "The device's compiler cannot be stopped: it goes on in the background, and the process ends after it."
RUN = "The device cannot be stopped: it goes on with the run in the background, and the process ends after it."

# Seconds of a run from which on the next one is to be interruptible. To start a thread takes some 0.1 ms.
LONG = 0.1

# As much work (``cpu_work``) takes any device less than a second.
LITTLE_WORK = 1_000_000_000


def interruptible(call: Callable[[], T]) -> T:
    """What ``call`` returns or raises.

    Python answers signals in the main thread and between two of its own instructions. So the main thread waits here for
    another one, which makes the call; Ctrl-C raises KeyboardInterrupt at once.
    """
    if threading.current_thread() is not threading.main_thread():
        return call()
    answer = _started(call)
    return _awaited(answer, COMPILER)


def _started(call: Callable[[], T]) -> Future[T]:
    from concurrent.futures import ThreadPoolExecutor

    pool = ThreadPoolExecutor(1, thread_name_prefix="tflgpu-driver")
    answer = pool.submit(call)
    pool.shutdown(wait=False)
    return answer


def _awaited(answer: Future[T], note: str) -> T:
    try:
        return answer.result()
    except KeyboardInterrupt as interrupt:
        interrupt.add_note(note)
        raise


class InterruptibleRuns:
    """Makes the runs of one model: long ones so that Ctrl-C ends the wait for them. Not thread-safe.

    A run is expected to be long if the last one was, the first one by its work.
    """

    def __init__(self, work: int) -> None:
        self._is_long = work > LITTLE_WORK
        self._left: Future[Any] | None = None  # a run that goes on although nobody waits for it

    def make(self, run: Callable[[], T]) -> T:
        """What ``run`` returns or raises."""
        begun = perf_counter()
        try:
            if not self._is_long or threading.current_thread() is not threading.main_thread():
                return run()
            answer = _started(run)
            try:
                return _awaited(answer, RUN)
            except KeyboardInterrupt:
                self._left = answer
                raise
        finally:
            self._is_long = perf_counter() - begun > LONG

    def settle(self) -> None:
        """Wait for a run that was interrupted: its memory is in use."""
        if self._left is not None:
            self._left.exception()
            self._left = None
