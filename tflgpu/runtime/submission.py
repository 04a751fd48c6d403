"""Result of :meth:`tflgpu.CompiledModel.enqueue`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Any, TypeAlias

import pyopencl as cl

from tflgpu.artifact.executable import Array
from tflgpu.runtime.announcer import Announcer, call_logged
from tflgpu.runtime.executors.in_flight import InFlightRun
from tflgpu.runtime.instance import Instance
from tflgpu.runtime.last_call import Targets
from tflgpu.runtime.opencl.session import DeviceFailures

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
