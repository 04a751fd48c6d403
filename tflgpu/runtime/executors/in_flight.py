"""Inferences on their way."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from weakref import WeakMethod

import pyopencl as cl

from tflgpu.artifact.executable import Array
from tflgpu.errors import DeviceError
from tflgpu.runtime.transfer import Passage

# Inferences of one executor: enough for half a millisecond of a small model, and a bound on the memory that they take.
AT_MOST = 8


@dataclass(eq=False)
class InFlightRun:
    """An inference that is enqueued.

    begun: when, by ``time.perf_counter``. event: of its last command. passage: of its arrays from and to the host.
    kept: what else has to live until it is over. error: that its kernels have reported.
    """

    begun: float
    event: cl.Event
    passage: Passage
    kept: object = None
    error: DeviceError | None = None

    @property
    def is_over(self) -> bool:
        """Whether its last command has ended."""
        return self.event.command_execution_status <= cl.command_execution_status.COMPLETE


class InFlightRuns:
    """Runs of one executor that are not known to be over, in order: ``waiting``.

    A signal handler may wait for some of them in the middle of any method.
    """

    def __init__(self, check: Callable[[float], None]) -> None:
        """check: called when the inferences since a time are over; raises DeviceError if kernels report a failure.

        It is a method of the executor that has this, and kept weakly: the device's memory is free with the last
        reference to the executor, and does not wait for the garbage collector.
        """
        self._check = WeakMethod(check)
        self.waiting: deque[InFlightRun] = deque()

    def add(self, flight: InFlightRun) -> None:
        """Note a run that is under way.

        Args:
            flight: Enqueued after all others.
        """
        self.waiting.append(flight)

    def make_room(self) -> None:
        """Forget those that are over. Wait for the first one if their number is at its limit."""
        for flight in tuple(self.waiting):
            if len(self.waiting) < AT_MOST and not flight.is_over:
                break
            self._wait(flight)

    def wait(self, flight: InFlightRun) -> None:
        """Wait for a run, and for those before it.

        Args:
            flight: One that was added.

        Raises:
            DeviceError: Its kernels have reported a failure.
        """
        self._wait(flight)
        if flight.error is not None:
            raise flight.error

    def wait_all(self) -> None:
        """Wait for all runs that are under way."""
        if self.waiting and (waiting := tuple(self.waiting)):
            self._wait(waiting[-1])

    def _wait(self, last: InFlightRun) -> None:
        """Wait. An error fails all runs in flight: which was the first is not known."""
        waiting = tuple(self.waiting)
        if last not in waiting:
            return
        landing = waiting[: waiting.index(last) + 1]
        for flight in landing:
            flight.event.wait()
        try:
            if check := self._check():
                check(landing[0].begun)
        except DeviceError as error:
            for flight in waiting:
                flight.error = error
            self._forget(waiting)
            raise
        self._forget(landing)

    def _forget(self, flights: Iterable[InFlightRun]) -> None:
        for flight in flights:
            with suppress(ValueError):  # a signal handler has waited for it meanwhile
                self.waiting.remove(flight)


class Arrived(Passage):
    """Ending of an inference that is over already."""

    def __init__(self, arrays: list[Array]) -> None:
        super().__init__()
        self._arrays = arrays

    def arrays(self) -> list[Array]:
        """Return the outputs."""
        return self._arrays
