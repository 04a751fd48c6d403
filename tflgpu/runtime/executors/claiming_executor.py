"""The claiming executor: one launch for each inference on a CPU, whose work-groups claim the tiles of all kernels."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from tflgpu.artifact.executable import Claiming, Executable
from tflgpu.runtime.executors.executor import Executor, Interval
from tflgpu.runtime.opencl.clock import measure_launches
from tflgpu.runtime.opencl.limit_queries import has_shared_memory
from tflgpu.runtime.opencl.program import make_kernel, set_number
from tflgpu.runtime.opencl.session import Session, profiling_queue
from tflgpu.runtime.transfer.direct_transfer import DirectTransfer, SharedTransfer
from tflgpu.runtime.transfer.transfer import Transfer

# How often a work-group looks for the others before it leaves the rest to them: for about a millisecond. Tiles take
# microseconds.
PATIENCE = 1 << 20

# Multiplications, or half as many bytes, for which one more work-group is worthwhile: it has to wake another core, and
# to meet it between kernels. On two cores of an EPYC two groups take 0.86 to 0.92 of the time of one for 15 million
# (Intel's runtime, PoCL), and 1.1 to 1.4 times as long for 3.5 million.
WORTHWHILE = 5_000_000


class ClaimingExecutor(Executor):
    """Runs all kernels in one launch, with a work-group for each core that is worthwhile."""

    def __init__(self, executable: Executable, claiming: Claiming, program: cl.Program, session: Session) -> None:
        self._claiming, self._program = claiming, program
        work = sum(launch.macs + 2 * launch.bytes for launch in executable.launches)
        most = min(1 + work // WORTHWHILE, max(launch.groups for launch in executable.launches))
        self._shared: dict[int, NDArray[np.uint8]] = {}  # memory that is the host's, too, by number of buffer
        self._size = (min(session.device.compute_units, most),), (1,)
        super().__init__(executable, program, session)

    def _new_buffer(self, number: int, size: int) -> cl.Buffer:
        device = self.session.device
        bound = {binding.buffer for binding in self.executable.bindings}
        if number not in bound or not has_shared_memory(device.handle):
            return super()._new_buffer(number, size)
        memory = self._shared[number] = cl.fsvm_empty(self.session.context, (size,), np.dtype(np.uint8))
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
        return cl.Buffer(self.session.context, flags, hostbuf=memory)

    def _make_transfer(self) -> Transfer:
        if self._shared:
            return SharedTransfer(self.executable, self._buffers, self.session, self._shared)
        return DirectTransfer(self.executable, self._buffers, self.session)

    def _bind(self, program: cl.Program) -> None:
        self._counters = self._new_counters()
        self._kernel = self._bound(self._counters, 0, len(self._claiming.order))
        self._follow(self._kernel)

    def _bound(self, counters: cl.Buffer, begin: int, end: int) -> cl.Kernel:
        """The kernel with arguments to run the launches of these places in the order."""
        kernel = make_kernel(self._program, self._claiming.function)
        first = self._bind_whole(kernel)
        kernel.set_arg(first, counters)
        for i, number in enumerate((np.uint32(PATIENCE), np.int32(begin), np.int32(end)), first + 1):
            set_number(kernel, i, number)
        return kernel

    def _new_counters(self) -> cl.Buffer:
        words = np.zeros(self._claiming.counter_words(*self._size[0]), np.uint32)
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        return cl.Buffer(self.session.context, flags, hostbuf=words)

    def set_patience(self, looks: int) -> None:
        """Set how often a work-group looks for the others; with 0 it leaves as soon as it would have to wait."""
        set_number(self._kernel, self._kernel.num_args - 3, np.uint32(looks))

    def _start(self, ready: Sequence[cl.Event] = ()) -> cl.Event:
        return cl.enqueue_nd_range_kernel(self.session.queue, self._kernel, *self._size, wait_for=ready or None)

    def _check(self, begun: float) -> None:
        """Does nothing: the queue reports every failure."""

    @cached_property
    def _profiled(self) -> tuple[cl.CommandQueue, cl.Buffer, list[cl.Kernel]]:
        """A queue, counters, and for each launch in the order a kernel that runs it alone."""
        counters = self._new_counters()
        kernels = [self._bound(counters, place, place + 1) for place in range(len(self._claiming.order))]
        return profiling_queue(self.session), counters, kernels

    def _measure(self) -> list[Interval]:
        self.session.queue.finish()
        queue, counters, kernels = self._profiled
        cl.enqueue_fill(queue, counters, np.zeros(1, np.uint32), counters.size)  # they may be of half a run
        times = measure_launches(queue, [(kernel, *self._size) for kernel in kernels])
        seconds = [((begin - times[0][0]) * 1e-9, (end - times[0][0]) * 1e-9) for begin, end in times]
        intervals = dict(zip(self._claiming.order, seconds, strict=True))
        return [intervals[launch] for launch in range(len(intervals))]
