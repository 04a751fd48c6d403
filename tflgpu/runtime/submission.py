"""What :meth:`tflgpu.CompiledModel.enqueue` returns."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager
from typing import TypeAlias

import pyopencl as cl

from tflgpu.artifact.executable import Array
from tflgpu.runtime.executors.in_flight import InFlightRun
from tflgpu.runtime.instance import Instance
from tflgpu.runtime.last_call import Targets
from tflgpu.runtime.opencl.session import DeviceFailures

Event: TypeAlias = cl.Event


class Submission:
    """An inference in flight, of :meth:`tflgpu.CompiledModel.enqueue`. Threads may share it.

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
    ) -> None:
        self.event: Event = flight.event
        self._instance, self._targets, self._lock, self._failures = instance, targets, lock, failures
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

    def take(self, names: Collection[str]) -> dict[str, Array]:
        """Wait for the inference, and take these outputs out of what :meth:`wait` returns."""
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
