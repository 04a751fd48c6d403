"""How the claiming executor's kernel is started and waited for: so many work-groups, on a queue."""

from __future__ import annotations

import os
import weakref
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

# Seconds that a thread looks for the end of a run before it sleeps: a few times what it takes to wake it.
LOOKING = 100e-6

# How often a work-group looks for the next run before it leaves: some 0.1 ms, too.
LINGERING = 400_000

# Runs without lingering, behind one for which the thread had to sleep: then others need the core, and who has looked
# for long waits for it the longest.
RESTING = 1000

# Words of the counters: runs that are over, runs that were asked for, and whether nobody will ask soon.
OVER, ASKED, LEAVE = 0, 2, 3


def is_over(run: cl.Event) -> bool:
    return run.command_execution_status <= cl.command_execution_status.COMPLETE


@dataclass
class Way:
    """So many work-groups, the kernel with their counters, and the queue for inputs and outputs on the host.

    looks: whether the calling thread looks for the end of a run, on a core that nothing else needs.
    """

    groups: int
    counters: cl.Buffer
    kernel: cl.Kernel
    queue: cl.CommandQueue
    looks: bool

    def start(self) -> cl.Event:
        return cl.enqueue_nd_range_kernel(self.queue, self.kernel, (self.groups,), (1,))

    def wait(self, run: cl.Event) -> None:
        """Wait for a run that was started."""
        if self.looks:
            self.queue.flush()
            end = perf_counter() + LOOKING
            while not is_over(run) and perf_counter() < end:
                pass
        run.wait()

    def leave(self) -> None:
        """End what a run may have left on the device."""


class LingeringWay(Way):
    """One work-group, which stays behind a run and looks for the next one: no thread is woken, and no kernel launched.

    It has left the device after some 0.1 ms without a run, and does not stay where it gets no core of its own. Host and
    device must keep the order in which the other one writes to the memory that they share, as x86 does: Python has no
    fences.
    """

    def __init__(
        self,
        kernel: cl.Kernel,
        lingering: cl.Kernel,
        queue: cl.CommandQueue,
        counters: cl.Buffer,
        memory: NDArray[np.uint32],
    ) -> None:
        """kernel: leaves behind each run. lingering: does not. memory: the host's view of the counters."""
        super().__init__(1, counters, kernel, queue, looks=True)
        self._lingering, self._words, self._asked = lingering, memory.data, 0
        self._rest = 0  # runs
        self._launched: list[cl.Event] = []  # the last one of the lingering kernel, if there is one
        self._owner = os.getpid()
        weakref.finalize(self, _end, self._launched, memory, self._owner)

    def start(self) -> cl.Event:
        if self._rest:
            self._rest -= 1
            return super().start()
        if self._launched and not is_over(self._launched[0]):
            self._ask(self._asked + 1)
            return self._launched[0]
        self.queue.finish()  # of runs that nobody waited for
        self._ask(self._words[OVER] + 1)
        return self._launch()

    def wait(self, run: cl.Event) -> None:
        if run not in self._launched:
            return super().wait(run)
        words, end = self._words, perf_counter() + LOOKING
        while words[OVER] != self._asked:
            late = perf_counter() > end
            if late:
                self._rest = RESTING
                words[LEAVE] = True
            if late or is_over(run):
                run.wait()
                if words[OVER] != self._asked:  # it had left when it was asked
                    run = self._launch()

    def leave(self) -> None:
        _end(self._launched, self._words, self._owner)

    def _ask(self, runs: int) -> None:
        self._asked = self._words[ASKED] = runs & 0xFFFFFFFF

    def _launch(self) -> cl.Event:
        self._words[LEAVE] = False
        self._launched[:] = [cl.enqueue_nd_range_kernel(self.queue, self._lingering, (1,), (1,))]
        self.queue.flush()
        return self._launched[0]


def _end(launched: list[cl.Event], words: memoryview | NDArray[np.uint32], owner: int) -> None:
    """Wait until the work-group has left: then its memory may go."""
    if os.getpid() != owner:  # a fork, without the device's threads
        return
    words[LEAVE] = True
    for run in launched:
        with suppress(cl.Error):  # whoever asked for the run has heard of it
            run.wait()
