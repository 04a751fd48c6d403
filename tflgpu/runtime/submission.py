"""Result of :meth:`tflgpu.CompiledModel.enqueue`, and the thread that calls functions when inferences are over."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Generator
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Any, Protocol, TypeAlias

import pyopencl as cl

from tflgpu.artifact.executable import Array
from tflgpu.runtime.executors.in_flight import InFlightRun
from tflgpu.runtime.input_check import Targets
from tflgpu.runtime.instance import Instance
from tflgpu.runtime.opencl.process import starts_threads
from tflgpu.runtime.opencl.session import DeviceFailures

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


Event: TypeAlias = cl.Event


class Submission:
    """An inference in flight, of :meth:`tflgpu.CompiledModel.enqueue`. Threads may share it.

    Coroutines of asyncio await it: ``outputs = await model.enqueue(inputs)``. The event loop goes on meanwhile.

    Attributes:
        event: Pyopencl's, of the inference's last command; other queues of the context can wait for it.
    """

    def __init__(
        self,
        instance: Instance,
        flight: InFlightRun,
        targets: Targets,
        lock: AbstractContextManager[object],
        failures: DeviceFailures,
        announcer: Announcer,
    ) -> None:
        self.event: Event = flight.event
        self._instance, self._targets, self._lock, self._failures = instance, targets, lock, failures
        self._announcer = announcer
        self._flight: InFlightRun | None = flight
        self._outcome: dict[str, Array] | Exception | None = None

    @property
    def done(self) -> bool:
        """Whether :meth:`wait` returns, or raises, at once."""
        flight = self._flight
        if flight is None:
            return True
        with self._failures:
            return flight.is_over

    def wait(self) -> dict[str, Array]:
        """Wait for the inference.

        Returns:
            The outputs for which the call gave no arrays, by name; each time the same ones. Arrays of the host that it
            gave are filled.

        Raises:
            Exception: What :meth:`tflgpu.CompiledModel.run` would have raised.
        """
        with self._failures:
            self.event.wait()  # without the lock, so that other threads can enqueue
            with self._lock:
                if self._flight is not None:
                    outcome = self._landed(self._flight)
                    if self._flight is not None:  # a signal handler may have been here meanwhile
                        self._outcome, self._flight = outcome, None
        if isinstance(self._outcome, Exception):
            raise self._outcome
        assert self._outcome is not None
        return self._outcome

    def add_done_callback(self, function: Callable[[Submission], object]) -> None:
        """Call a function when the inference is over, as :meth:`concurrent.futures.Future.add_done_callback` does.

        The functions of a model are called in a thread of its own, one after another, in the order in which they were
        added. If the inference is known to be over, the call is made here, before this returns. Whatever a function
        raises is logged and has no other effect; only SystemExit and KeyboardInterrupt of a call made here pass.

        Args:
            function: Gets this submission, whose ``wait`` returns, or raises, at once.
        """
        if self._flight is None:
            call_logged(partial(function, self))
        else:
            self._announcer.add(self, partial(function, self))

    def settle(self) -> None:
        """Wait for the inference, without its result or error."""
        with suppress(Exception):
            self.wait()

    def __await__(self) -> Generator[Any, None, dict[str, Array]]:
        """Wait in a coroutine. Gives what :meth:`wait` gives, and raises what it raises."""
        import asyncio  # who awaits has it already; a start of others does without

        loop = asyncio.get_running_loop()
        over = loop.create_future()

        def finish() -> None:
            if not over.done():  # else the coroutine was cancelled
                over.set_result(None)

        def announce(_: Submission) -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(finish)

        self.add_done_callback(announce)
        yield from over
        return self.wait()

    def take(self, names: Collection[str]) -> dict[str, Array]:
        """Wait for the inference, and take some outputs out of what :meth:`wait` returns.

        Args:
            names: The names of these outputs. Each can be taken once.
        """
        outputs = self.wait()
        return {name: outputs.pop(name) for name in names}

    def _landed(self, flight: InFlightRun) -> dict[str, Array] | Exception:
        try:
            with self._failures:
                return self._targets.delivered(self._instance.collect(flight))
        except Exception as error:
            return error

    def __repr__(self) -> str:
        return f"<Submission, {'done' if self.done else 'on its way'}>"
