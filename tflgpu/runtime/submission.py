"""What :meth:`tflgpu.CompiledModel.enqueue` returns."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TypeAlias

import pyopencl as cl

from tflgpu.artifact.executable import Array
from tflgpu.runtime.executors.in_flight import InFlightRun
from tflgpu.runtime.instance import Instance
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
        names: Sequence[str],
        lock: AbstractContextManager[object],
        failures: DeviceFailures,
    ) -> None:
        self.event: Event = flight.event
        self._instance, self._names, self._lock, self._failures = instance, names, lock, failures
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
            The outputs that are not on the device, by name; each time the same arrays.

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

    def _landed(self, flight: InFlightRun) -> dict[str, Array] | Exception:
        try:
            with self._failures:
                return dict(zip(self._names, self._instance.collect(flight), strict=True))
        except Exception as error:
            return error

    def __repr__(self) -> str:
        return f"<Submission, {'done' if self.done else 'on its way'}>"
