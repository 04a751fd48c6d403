"""Calls functions when inferences are over."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

from tflgpu.runtime.opencl.process import starts_threads

LOGGER = logging.getLogger(__name__)

# Seconds that the thread stays when it has nothing to wait for: to start one takes longer than a small inference.
LINGER = 0.1

FAILED = "a function that was to be called after an inference has failed"


class Ending(Protocol):
    """Protocol of what can be waited for."""

    def settle(self) -> None:
        """Wait for it, without its result or error."""


class Announcer:
    """Announcements of one model, one after another, in a thread that ends when there is nothing more to wait for."""

    def __init__(self) -> None:
        # A signal handler may add one in the middle of any method.
        self._changed = threading.Condition(threading.RLock())
        self._waiting: deque[tuple[Ending, Callable[[], object]]] = deque()
        self._thread: threading.Thread | None = None

    def add(self, ending: Ending, function: Callable[[], object]) -> None:
        """Call a function when an inference is over: in the thread, or here if Python ends and starts no threads.

        Args:
            ending: The inference.
            function: Its exceptions are logged.
        """
        with self._changed:
            if starts_threads():
                self._waiting.append((ending, function))
                self._changed.notify()
                if self._thread is None:
                    # No daemon: the end of Python waits for it, and so for the functions.
                    self._thread = threading.Thread(target=self._announce, name="tflgpu-callbacks")
                    self._thread.start()
                return
        ending.settle()
        call_logged(function)

    def _announce(self) -> None:
        while True:
            with self._changed:
                if not self._waiting and not self._changed.wait_for(self._waiting.__len__, LINGER):
                    self._thread = None
                    return
                ending, function = self._waiting.popleft()
            try:
                ending.settle()
                call_logged(function)
            except BaseException:  # this thread is also that of other callers' functions, so none of them ends it
                LOGGER.exception(FAILED)
            del ending, function  # and with them what they hold on the device


def call_logged(function: Callable[[], object]) -> None:
    """Call a function; an exception is logged, as asyncio does it: SystemExit and KeyboardInterrupt pass.

    Args:
        function: A user's, without arguments.
    """
    try:
        function()
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException:
        LOGGER.exception(FAILED)
