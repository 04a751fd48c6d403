"""The persistent executor: one launch for many kernels; work-groups wait for each other between dependent ones."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from time import perf_counter

import numpy as np
import pyopencl as cl

from tflgpu.artifact.executable import DeviceBuffer, Executable, Persistent
from tflgpu.errors import DeviceError
from tflgpu.runtime.executors.buffers import allocated
from tflgpu.runtime.executors.executor import Interval, OneKernelExecutor
from tflgpu.runtime.executors.launch_executor import LaunchQueue
from tflgpu.runtime.opencl.clock import Launch
from tflgpu.runtime.opencl.program import Program, make_kernel, set_number
from tflgpu.runtime.opencl.session import Session, copy
from tflgpu.runtime.pinned_transfer import PinnedTransfer

# How often a work-group polls for the others at a barrier. It takes seconds; the longest kernels take milliseconds.
SPIN_LIMIT = 1 << 22

# Seconds that every poll takes at least: it loads from memory that all compute units share, which takes a GPU some
# hundred nanoseconds. What is over sooner than its spin limit has not failed, and nothing has to be read to know that.
LOOK = 1e-8


class PersistentExecutor(OneKernelExecutor):
    """Runs all kernels in one launch, or in a few."""

    def __init__(self, executable: Executable, program: Program, session: Session) -> None:
        assert executable.persistent is not None, "the executable was not made for this executor"
        self._persistent: Persistent = executable.persistent
        super().__init__(executable, program, session)

    def _allocate(self) -> list[cl.Buffer]:
        """Ranges of one buffer: each that is an argument takes an H200's driver 0.2 us or more of a launch."""
        executable, end = self.executable, self.executable.ranges[-1]
        whole = DeviceBuffer(end + self._persistent.clock_bytes)
        self._whole = allocated(whole, self.session, partial(self._new_buffer, 0), "weights and activations")
        self._times = self._whole.get_sub_region(end, self._persistent.clock_bytes)
        buffers = []
        for number, (begin, wanted) in enumerate(zip(executable.ranges, executable.buffers, strict=False)):
            if number in executable.apart:
                buffers.append(allocated(wanted, self.session, partial(self._new_buffer, number)))
                continue
            buffers.append(self._whole.get_sub_region(begin, wanted.bytes))
            if wanted.data is not None:
                copy(self.session.queue, buffers[-1], wanted.data)
        return buffers

    @property
    def _memory(self) -> list[cl.Buffer]:
        return [self._whole, *(self._buffers[number] for number in self.executable.apart)]

    def _argument_of(self, number: int) -> int:
        return 1 + self.executable.apart.index(number)

    def _make_transfer(self) -> PinnedTransfer:
        return PinnedTransfer(self.executable, self._buffers, self.session)

    def _bind(self, program: Program) -> None:
        runs, repeated = self._persistent.runs, self._persistent.repeated
        self._kernels = [make_kernel(program, run.function) for run in runs]
        for kernel, run in zip(self._kernels, runs, strict=True):
            self._spin_limit_argument = self._bind_whole(kernel)
            self._follow(kernel)
            if run.function in repeated:
                for behind, place in ((2, run.begin), (3, run.end)):
                    set_number(kernel, self._spin_limit_argument + behind, np.int32(place))
        self._set_number(1, np.int32(0))
        self.set_spin_limit(SPIN_LIMIT)
        device, local_size = self.session.device, self._persistent.local_size
        # All groups must run at the same time. Each compute unit of a GPU has room for one; other devices may not.
        self._groups = device.compute_units if device.type == "gpu" else 1
        size = self._groups * local_size
        self._launches: list[Launch] = [(kernel, (size,), (local_size,), (0,)) for kernel in self._kernels]
        self._launch_queue = LaunchQueue(self.session, self._launches)

    def _set_number(self, behind: int, number: np.uint32 | np.int32) -> None:
        """Set an argument of each kernel. behind: its distance from the argument of the spin limit."""
        for kernel in self._kernels:
            set_number(kernel, self._spin_limit_argument + behind, number)

    def set_spin_limit(self, looks: int) -> None:
        """Set how often a work-group polls for the others at a barrier before it fails.

        Args:
            looks: With 0 it always fails.
        """
        self._set_number(0, np.uint32(looks))
        self._soonest = looks * LOOK

    def warm_up(self) -> None:
        """Run once, and raise what the kernel has reported."""
        super().warm_up()
        self._read_failures()

    def _start(self, ready: Sequence[cl.Event] = ()) -> cl.Event | None:
        return self._launch_queue.start(ready)

    def _start_silently(self) -> None:
        self._launch_queue.start_silently()

    def _check(self, begun: float) -> None:
        if perf_counter() - begun >= self._soonest:
            self._read_failures()

    def _read_failures(self) -> None:
        queue, results = self.session.queue, self._buffers[self.executable.results]
        header = np.empty(2, np.uint32)
        cl.enqueue_copy(queue, header, results)
        _, failed = header
        if failed:
            cl.enqueue_fill(queue, results, np.zeros(1, np.uint32), header.nbytes)
            raise DeviceError(
                f"the {self._groups} work-groups of the model's kernel do not run at the same time on "
                f"{self.session.device.name}, or another program keeps it busy; "
                'Options(execution=Execution(executor="launch")) runs there'
            )

    def _measure(self) -> list[Interval]:
        """Return a wait at a barrier counts as time of the first launch after it."""
        persistent = self._persistent
        if not persistent.clock:
            raise DeviceError(
                f"kernels on {self.session.device.name} cannot read a clock; "
                'a profile needs Options(execution=Execution(executor="launch")) there'
            )
        self._set_number(1, np.int32(1))
        self._start()
        self._set_number(1, np.int32(0))
        self._read_failures()
        times = np.empty(len(persistent.order) + 1, np.uint64)
        cl.enqueue_copy(self.session.queue, times, self._times)
        seconds = (times - times[0]) * 1e-9
        intervals = dict(zip(persistent.order, pairwise(seconds), strict=True))
        return [intervals[launch] for launch in range(len(intervals))]
