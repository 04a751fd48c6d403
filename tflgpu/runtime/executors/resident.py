"""How the claiming executor's kernel is started and waited for."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from time import perf_counter, sleep

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from tflgpu.runtime.opencl.process import Using

# Seconds that a run on time saves beside one without resident work-groups.
SAVED = 10e-6


@dataclass(frozen=True)
class Pace:
    """How long threads and work-groups wait for each other.

    Attributes:
        spin_seconds: How long a thread polls for the end of a run before it sleeps: a few times what it takes to wake
            it.
        resident_polls: Spin limit of a work-group that stays on the device for the next run: some 0.1 ms.
        helper_polls: Spin limit of one that helps a thread: some 30 us. Where few threads compute, other kernels wait
            for it to leave.
        first_backoff: Runs that do without resident work-groups after the first one that was late, as others need the
            core then: a process begins with slow runs. The number doubles with each late run. It starts again if the
            runs on time since the last late run have saved more than that run took.
        longest_backoff: The most such runs.
        burst_seconds: After a run, how long the next one may be one of many: then work-groups become resident.
    """

    spin_seconds: float = 100e-6
    resident_polls: int = 400_000
    helper_polls: int = 100_000
    first_backoff: int = 16
    longest_backoff: int = 1000
    burst_seconds: float = 1e-3


PACE = Pace()

# Words of the counters: runs that are over, runs that were asked for, whether work-groups are to leave, and how many
# helpers have come and have left.
OVER, ASKED, LEAVE, CAME, LEFT = 0, 2, 3, 4, 5


def is_over(run: cl.Event) -> bool:
    """Whether a run has ended, with or without an error.

    Args:
        run: The event of its kernel.
    """
    return run.command_execution_status <= cl.command_execution_status.COMPLETE


@dataclass
class LaunchedKernel:
    """A kernel that is launched for each run.

    Attributes:
        groups: Number of work-groups.
        counters: Those of the kernel.
        kernel: The kernel with all of its arguments.
        queue: For the launches of runs whose inputs and outputs are arrays on the host.
        spins: Whether the calling thread polls for the end of a run, on a core that nothing else needs.
        pace: How long it does.
    """

    groups: int
    counters: cl.Buffer
    kernel: cl.Kernel
    queue: cl.CommandQueue
    spins: bool = False
    pace: Pace = PACE

    def __post_init__(self) -> None:
        self._sizes = (self.groups,), (1,)  # global and local

    def start(self) -> cl.Event:
        """Enqueue a run."""
        return cl.enqueue_nd_range_kernel(self.queue, self.kernel, *self._sizes)

    def calls(self) -> tuple[Callable[[], cl.Event], Callable[[cl.Event], object]]:
        """Return what :meth:`start` and :meth:`wait` call, without a function of Python in between where there is a
        way."""
        if self.spins:
            return self.start, self.wait
        return partial(cl.enqueue_nd_range_kernel, self.queue, self.kernel, *self._sizes), cl.Event.wait

    def wait(self, run: cl.Event) -> None:
        """Wait for a run that was started.

        Args:
            run: The event of its kernel.
        """
        if self.spins:
            self.queue.flush()
            end = perf_counter() + self.pace.spin_seconds
            while not is_over(run) and perf_counter() < end:
                pass
        run.wait()

    def leave(self) -> None:
        """End what a run may have left on the device."""


class ResidentKernel(LaunchedKernel):
    """Keeps work-groups on the device after a run, where they poll for the next one and leave at their spin limit.

    With one work-group, it is resident: no thread is woken for a run, and no kernel launched. With several, the calling
    thread computes the first one, and the others are resident to help it: a run waits for none of them to come, and
    without them the thread computes all of it.

    They stay where runs follow each other, and where they get a core of their own. Host and device must keep the order
    in which the other one writes to the memory that they share, as x86 does: Python has no fences.
    """

    def __init__(
        self,
        groups: int,
        counters: cl.Buffer,
        memory: NDArray[np.uint32],
        kernel: cl.Kernel,
        resident: cl.Kernel,
        queue: cl.CommandQueue,
        resident_queue: cl.CommandQueue,
        pace: Pace = PACE,
    ) -> None:
        """Nothing is launched yet.

        Args:
            groups: Number of work-groups of a run.
            counters: Those of both kernels.
            memory: The host's view of the counters.
            kernel: Leaves after a run.
            resident: The same kernel, which stays.
            queue: For ``kernel``. Where there are several groups, it computes before the call returns.
            resident_queue: For ``resident``.
            pace: How long thread and work-groups wait for each other.
        """
        super().__init__(groups, counters, kernel, queue, spins=True, pace=pace)
        self._resident, self._resident_queue = resident, resident_queue
        self._helps = groups > 1
        self._staying = max(1, groups - 1)  # the number of resident groups
        self._words = memory.data
        self._words[LEFT] = self._staying
        self._asked = 0  # the number of the last run that was asked for
        self._are_new = False
        self._rest, self._next_rest = 0, pace.first_backoff  # runs
        self._on_time = 0  # runs since the last late one
        self._least = pace.spin_seconds  # seconds that a run has taken
        self._ended = 0.0  # when the last run did
        self._launched: list[cl.Event] = []  # the last launch of the resident kernel, if there is one
        self._owner = os.getpid()
        weakref.finalize(self, _end, self._launched, memory, self._owner)

    def start(self) -> cl.Event:
        """Start a run: by a word to the resident work-groups, else by a launch."""
        words = self._words
        if self._rest:
            self._rest -= 1
        elif words[LEFT] == self._staying:
            if perf_counter() - self._ended < self.pace.burst_seconds:
                self.queue.finish()  # of runs that were not waited for
                self._asked = words[ASKED] = words[OVER]
                self._launch_resident()
        elif self._are_new and self._helps:
            self._are_new = False
            if not words[CAME]:
                sleep(1e-6)  # they may wait for the core of this thread, while another one has become free
        if self._helps:
            self._asked = words[OVER]
        elif words[LEFT]:
            return super().start()
        self._asked = words[ASKED] = (self._asked + 1) & 0xFFFFFFFF
        return self._launch() if self._helps else self._launched[0]

    def wait(self, run: cl.Event) -> None:
        """Wait for a run, first by polling. One that is late is done without the resident work-groups.

        Args:
            run: The event of its kernel.
        """
        if self._helps:
            on_time = self._words[OVER] == self._asked
        elif run in self._launched:
            on_time = self._poll()
        else:
            super().wait(run)
            on_time = True
        if on_time:
            self._on_time += not self._rest
        else:
            self._do_without()
        self._ended = perf_counter()

    def _poll(self) -> bool:
        """Poll for the end of the run. Returns False if it is late."""
        words, begun = self._words, perf_counter()
        end = begun + self.pace.spin_seconds + 2 * self._least
        while words[OVER] != self._asked:
            if perf_counter() > end:
                return False
            if words[LEFT] and words[OVER] != self._asked:  # it had left when it was asked
                self._launch_resident()
        self._least = min(self._least, perf_counter() - begun)
        return True

    def leave(self) -> None:
        """Let the resident work-groups leave, and wait until they have."""
        _end(self._launched, self._words, self._owner)

    def _do_without(self) -> None:
        """End a run that is late, and let the next ones rest."""
        begun = perf_counter()
        self.leave()
        if self._words[OVER] != self._asked:
            super().wait(self._launch())
        self._back_off(perf_counter() - begun)

    def _back_off(self, seconds: float) -> None:
        """Let the next runs do without resident work-groups, after one that took this much longer."""
        if self._on_time * SAVED > seconds:
            self._next_rest = self.pace.first_backoff
        self._on_time = 0
        self._rest = min(self._next_rest, self.pace.longest_backoff)
        self._next_rest = 2 * self._rest

    def _launch(self) -> cl.Event:
        """Launch the first work-group alone."""
        return cl.enqueue_nd_range_kernel(self.queue, self.kernel, (1,), (1,))

    def _launch_resident(self) -> None:
        words = self._words
        words[CAME] = words[LEFT] = words[LEAVE] = 0
        self._are_new = True
        queue, first = self._resident_queue, (int(self._helps),)
        self._launched[:] = [cl.enqueue_nd_range_kernel(queue, self._resident, (self._staying,), (1,), first)]
        queue.flush()


def _end(launched: list[cl.Event], words: memoryview | NDArray[np.uint32], owner: int) -> None:
    """Wait until the work-group has left: then its memory may go."""
    if os.getpid() != owner:  # a fork, without the device's threads
        return
    words[LEAVE] = True
    for run in launched:
        with suppress(cl.Error, SystemExit), Using():  # the call that waits for the run reports it; Python may end
            run.wait()
