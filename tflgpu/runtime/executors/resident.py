"""How the claiming executor's kernel is started and waited for."""

from __future__ import annotations

import os
import weakref
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter, sleep

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from tflgpu.runtime.opencl.process import Using

# Seconds that a thread polls for the end of a run before it sleeps: a few times what it takes to wake it.
SPIN_SECONDS = 100e-6

# Spin limits in polls: of a work-group that stays on the device for the next run, some 0.1 ms, and of one that helps a
# thread, some 30 us: where few threads compute, other kernels wait for it to leave.
RESIDENT_POLLS = 400_000
HELPER_POLLS = 100_000

# Exponential back-off, in runs, after one for which the thread had to sleep: then others need the core. The first one,
# as a process begins with slow runs, and the longest. It starts again with the first one if the runs on time since the
# last late run have saved more than that run took; SAVED is what one of them saves, in seconds.
FIRST_BACKOFF, LONGEST_BACKOFF, SAVED = 16, 1000, 10e-6

# Seconds after a run in which the next one may be one of many: then it asks for helpers.
BURST_SECONDS = 1e-3

# Words of the counters: runs that are over, runs that were asked for, whether work-groups are to leave, and how many
# helpers have come and have left.
OVER, ASKED, LEAVE, CAME, LEFT = 0, 2, 3, 4, 5


def is_over(run: cl.Event) -> bool:
    """Whether a run has ended."""
    return run.command_execution_status <= cl.command_execution_status.COMPLETE


@dataclass
class LaunchedKernel:
    """A number of work-groups, the kernel with their counters, and the queue for inputs and outputs on the host.

    looks: whether the calling thread looks for the end of a run, on a core that nothing else needs.
    """

    groups: int
    counters: cl.Buffer
    kernel: cl.Kernel
    queue: cl.CommandQueue
    looks: bool

    def start(self) -> cl.Event:
        """Enqueue a run."""
        return cl.enqueue_nd_range_kernel(self.queue, self.kernel, (self.groups,), (1,))

    def wait(self, run: cl.Event) -> None:
        """Wait for a run that was started."""
        if self.looks:
            self.queue.flush()
            end = perf_counter() + SPIN_SECONDS
            while not is_over(run) and perf_counter() < end:
                pass
        run.wait()

    def leave(self) -> None:
        """End what a run may have left on the device."""


@dataclass
class SharedCounters:
    """Counters that the host reads and writes, too. memory: its view of them."""

    counters: cl.Buffer
    memory: NDArray[np.uint32]


class _Resident(LaunchedKernel):
    """Keeps work-groups resident after a run. They poll for the next one, and leave at their spin limit.

    They have left the device after some 0.1 ms without a run, and do not stay where they get no core of their own. Host
    and device must keep the order in which the other one writes to the memory that they share, as x86 does: Python has
    no fences.
    """

    def __init__(self, groups: int, kernel: cl.Kernel, queue: cl.CommandQueue, shared: SharedCounters) -> None:
        super().__init__(groups, shared.counters, kernel, queue, looks=True)
        self._words = shared.memory.data
        self._rest, self._next_rest = 0, FIRST_BACKOFF  # runs
        self._on_time = 0  # runs since the last late one
        self._launched: list[cl.Event] = []  # the last one of the kernel that stays, if there is one
        self._owner = os.getpid()
        weakref.finalize(self, _end, self._launched, shared.memory, self._owner)

    def leave(self) -> None:
        _end(self._launched, self._words, self._owner)

    def _back_off(self, seconds: float) -> None:
        """Let the next runs do without who stays, after one that took so long."""
        if self._on_time * SAVED > seconds:
            self._next_rest = FIRST_BACKOFF
        self._on_time = 0
        self._rest = min(self._next_rest, LONGEST_BACKOFF)
        self._next_rest = 2 * self._rest


class ResidentKernel(_Resident):
    """One work-group, which stays: no thread is woken for a run, and no kernel launched."""

    def __init__(self, kernel: cl.Kernel, lingering: cl.Kernel, queue: cl.CommandQueue, shared: SharedCounters) -> None:
        """kernel: leaves after each run. lingering: does not."""
        super().__init__(1, kernel, queue, shared)
        self._lingering, self._asked = lingering, 0
        self._least = SPIN_SECONDS  # seconds that a run has taken

    def start(self) -> cl.Event:
        """Start a run: by a word to the work-groups that stay on the device, else by a launch."""
        if self._rest:
            self._rest -= 1
            return super().start()
        if self._launched and not self._words[LEFT]:
            self._ask(self._asked + 1)
            return self._launched[0]
        self.queue.finish()  # of runs that were not waited for
        self._ask(self._words[OVER] + 1)
        return self._launch()

    def wait(self, run: cl.Event) -> None:
        """Wait for a run, first by polling."""
        if run not in self._launched:
            return super().wait(run)
        words, begun = self._words, perf_counter()
        end = begun + SPIN_SECONDS + 2 * self._least
        while words[OVER] != self._asked:
            if perf_counter() > end:
                return self._do_without(begun)
            if words[LEFT] and words[OVER] != self._asked:  # it had left when it was asked
                self._launch()
        self._on_time += 1
        self._least = min(self._least, perf_counter() - begun)

    def _do_without(self, begun: float) -> None:
        """End a run that is late."""
        self.leave()
        if self._words[OVER] != self._asked:
            super().wait(super().start())
        self._back_off(perf_counter() - begun)

    def _ask(self, runs: int) -> None:
        self._asked = self._words[ASKED] = runs & 0xFFFFFFFF

    def _launch(self) -> cl.Event:
        self._words[LEAVE] = self._words[LEFT] = 0
        self._launched[:] = [cl.enqueue_nd_range_kernel(self.queue, self._lingering, (1,), (1,))]
        self.queue.flush()
        return self._launched[0]


class HelpedKernel(_Resident):
    """One work-group on the thread that calls, and others that stay to help it where runs follow each other.

    A run waits for none of them to come: without them the thread computes all of it.
    """

    def __init__(
        self,
        groups: int,
        kernel: cl.Kernel,
        helping: cl.Kernel,
        queue: cl.CommandQueue,
        helpers: cl.CommandQueue,
        shared: SharedCounters,
    ) -> None:
        """kernel: of the first group. queue: computes before the call returns. helpers: another one."""
        super().__init__(groups, kernel, queue, shared)
        self._helping, self._helpers = helping, helpers
        self._are_new = False
        self._ended = 0.0  # the last run
        self._words[LEFT] = groups - 1

    def start(self) -> cl.Event:
        """Start a run whose tiles the host's thread claims as well."""
        words = self._words
        if self._rest:
            self._rest -= 1
        elif words[LEFT] == self.groups - 1:
            if perf_counter() - self._ended < BURST_SECONDS:
                self._call_helpers()
        elif self._are_new:
            self._are_new = False
            if not words[CAME]:
                sleep(1e-6)  # they may wait for the core of this thread, while another one has become free
        begun = perf_counter()
        asked = words[ASKED] = (words[OVER] + 1) & 0xFFFFFFFF
        run = self._run()
        if words[OVER] == asked:
            self._on_time += not self._rest
        else:  # a helper has lost its core
            self.leave()
            run = self._run()
            self._back_off(perf_counter() - begun)
        self._ended = perf_counter()
        return run

    def _run(self) -> cl.Event:
        return cl.enqueue_nd_range_kernel(self.queue, self.kernel, (1,), (1,))

    def wait(self, run: cl.Event) -> None:
        """Does nothing: the run is over."""

    def _call_helpers(self) -> None:
        words, others = self._words, self.groups - 1
        words[CAME] = words[LEFT] = words[LEAVE] = 0
        self._are_new = True
        self._launched[:] = [cl.enqueue_nd_range_kernel(self._helpers, self._helping, (others,), (1,), (1,))]
        self._helpers.flush()


def _end(launched: list[cl.Event], words: memoryview | NDArray[np.uint32], owner: int) -> None:
    """Wait until the work-group has left: then its memory may go."""
    if os.getpid() != owner:  # a fork, without the device's threads
        return
    words[LEAVE] = True
    for run in launched:
        with suppress(cl.Error, SystemExit), Using():  # the call that waits for the run reports it; Python may end
            run.wait()
