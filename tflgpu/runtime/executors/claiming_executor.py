"""The claiming executor: one launch for each inference on a CPU, whose work-groups claim the tiles of all kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from tflgpu.artifact.executable import Array, Binding, Claiming, Executable
from tflgpu.runtime.device_memory import DeviceMemory, Value
from tflgpu.runtime.executors.executor import NOWHERE, Interval
from tflgpu.runtime.executors.one_kernel import OneKernelExecutor
from tflgpu.runtime.executors.resident import (
    HELPER_POLLS,
    RESIDENT_POLLS,
    HelpedKernel,
    LaunchedKernel,
    ResidentKernel,
    SharedCounters,
)
from tflgpu.runtime.online_tuner import OnlineTuner, fastest
from tflgpu.runtime.opencl.clock import measure_launches
from tflgpu.runtime.opencl.limit_queries import has_host_memory, has_shared_memory
from tflgpu.runtime.opencl.program import Program, make_kernel, set_number
from tflgpu.runtime.opencl.quirks import Driver, quirks_of
from tflgpu.runtime.opencl.session import Session, profiling_queue
from tflgpu.runtime.transfer.direct_transfer import DirectTransfer, SharedTransfer
from tflgpu.runtime.transfer.transfer import Transfer, end
from tflgpu.target import HOST_DTYPES

# Spin limit of a work-group that waits for the others, in polls: about a millisecond. Tiles take microseconds.
SPIN_LIMIT = 1 << 20

# Work, in multiplications or in half bytes, from which on several work-groups are always used, and from which on one
# and several are both timed: another core has to be woken, and to be met between kernels, and whether cores share a
# cache makes more of a difference than the model.
ALWAYS_SEVERAL, EITHER = 20_000_000, 2_500_000

# Bytes of an input or output from which on kernels use the caller's array itself, where they can. To tell them where it
# is takes as long as to copy some 100 KB that are in no near cache.
LARGE = 1 << 17


class ClaimingExecutor(OneKernelExecutor):
    """Runs all kernels in one launch, with a work-group for each core that is worthwhile."""

    def __init__(self, executable: Executable, claiming: Claiming, program: Program, session: Session) -> None:
        self._claiming, self._program = claiming, program
        self._shared: dict[int, NDArray[np.uint8]] = {}  # memory that is the host's, too, by number of buffer
        self._lent: set[int] = set()  # the bindings that lay in callers' arrays in the last run on the host
        super().__init__(executable, program, session)

    def _find_lendable(self) -> dict[int, Binding]:
        """The inputs and outputs, by binding, that kernels may find in arrays of the host that are large enough."""
        if not has_host_memory(self.session.device.handle):
            return {}
        places = [binding.place for binding in self._bindings]
        return {
            n: binding
            for n, binding in enumerate(self._bindings)
            if binding.exact and HOST_DTYPES[binding.element] == binding.dtype
            if end(binding) - binding.offset >= LARGE and places.count(binding.place) == 1
        }

    def _new_buffer(self, number: int, size: int) -> cl.Buffer:
        device = self.session.device
        bound = {binding.buffer for binding in self.executable.bindings}
        if number not in bound or not has_shared_memory(device.handle):
            return super()._new_buffer(number, size)
        memory = self._shared[number] = self._new_shared(size)
        return self._buffer_of(memory)

    def _new_shared(self, size: int) -> NDArray[np.uint8]:
        memory: NDArray[np.uint8] = cl.fsvm_empty(self.session.context, (size,), np.dtype(np.uint8))
        return memory

    def _buffer_of(self, memory: NDArray[Any]) -> cl.Buffer:
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
        return cl.Buffer(self.session.context, flags, hostbuf=memory)

    def _make_transfer(self) -> Transfer:
        if self._shared:
            return SharedTransfer(self.executable, self._buffers, self.session, self._shared)
        return DirectTransfer(self.executable, self._buffers, self.session)

    def _bind(self, program: Program) -> None:
        self._lendable = self._find_lendable()
        ways = self._ways()
        self._way = fastest(ways, lambda way: way.wait(way.start()))
        self._contest = OnlineTuner(ways, self._way) if len(ways) > 1 else None
        self._last: cl.Event | None = None  # of the last run
        for way in ways:
            self._follow(way.kernel)

    def _ways(self) -> list[LaunchedKernel]:
        """The ways to run the kernel that may be the fastest."""
        launches, session = self.executable.launches, self.session
        work = sum(launch.work for launch in launches)
        most = min(1 + work // EITHER, max(launch.groups for launch in launches))
        is_little = work < session.device.limits.little_work
        groups = 1 if is_little else min(session.device.compute_units, most)
        if groups > 1 and work >= ALWAYS_SEVERAL:
            return [self._new_way(groups, session.queue)]
        # What else is enqueued for a run has to keep the order; other threads of Python wait for one on this thread.
        aside = session.aside if self._shared and not self.executable.states and work < ALWAYS_SEVERAL else None
        alone = self._new_way(1, aside or session.queue)
        if groups == 1:
            return [alone]
        if aside and not alone.looks and not self._lendable:
            return [alone, self._new_helped_way(groups, aside)]
        return [alone, self._new_way(groups, session.queue)]

    def _new_way(self, groups: int, queue: cl.CommandQueue) -> LaunchedKernel:
        device, places = self.session.device, len(self._claiming.order)
        quirks = quirks_of(Driver.of(device.handle))
        looks = groups < device.compute_units and any(quirk.wakes_slowly for quirk in quirks)
        lingers = looks and queue is self.session.aside and any(quirk.may_linger for quirk in quirks)
        if lingers and not self._lendable:  # who lingers does not hear of other arrays
            shared = self._shared_counters(groups)
            lingering = self._bound(shared.counters, 0, places, groups, RESIDENT_POLLS)
            return ResidentKernel(self._bound(shared.counters, 0, places, groups), lingering, queue, shared)
        counters = self._new_counters(groups)
        return LaunchedKernel(groups, counters, self._bound(counters, 0, places, groups), queue, looks)

    def _new_helped_way(self, groups: int, queue: cl.CommandQueue) -> LaunchedKernel:
        shared, places = self._shared_counters(groups), len(self._claiming.order)
        kernel, helping = (self._bound(shared.counters, 0, places, groups, lingers) for lingers in (0, HELPER_POLLS))
        return HelpedKernel(groups, kernel, helping, queue, cl.CommandQueue(self.session.context), shared)

    def _shared_counters(self, groups: int) -> SharedCounters:
        memory = self._new_shared(4 * self._claiming.counter_words(groups)).view(np.uint32)
        memory[:] = 0
        return SharedCounters(self._buffer_of(memory), memory)

    def _bound(self, counters: cl.Buffer, begin: int, end: int, groups: int, lingers: int = 0) -> cl.Kernel:
        """The kernel with arguments to run the launches of these places in the order.

        lingers: how often it looks for another run before it leaves.
        """
        kernel = make_kernel(self._program, self._claiming.function)
        first = self._bind_whole(kernel)
        kernel.set_arg(first, counters)
        numbers = np.uint32(SPIN_LIMIT), np.int32(begin), np.int32(end), np.uint32(groups), np.uint32(lingers)
        for i, number in enumerate(numbers, first + 1):
            set_number(kernel, i, number)
        return kernel

    def _new_counters(self, groups: int) -> cl.Buffer:
        words = np.zeros(self._claiming.counter_words(groups), np.uint32)
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        return cl.Buffer(self.session.context, flags, hostbuf=words)

    def set_spin_limit(self, looks: int) -> None:
        """Set how often a work-group looks for the others; with 0 it leaves as soon as it would have to wait."""
        set_number(self._way.kernel, self._way.kernel.num_args - 5, np.uint32(looks))

    def run(self, inputs: Sequence[Value], outputs: Mapping[int, DeviceMemory] = NOWHERE) -> list[Array]:
        """Run the model once; see :class:`Executor`."""
        on_host = [value for value in inputs if not isinstance(value, DeviceMemory)]
        if outputs or len(on_host) < len(inputs):
            return super().run(inputs, outputs)
        # As in other executors, in as few operations as possible: for a small model each counts.
        self._in_flight.wait_all()
        if self._lendable:
            return self._run_lending(on_host)
        super()._settle(NOWHERE)
        self._transfer.write(enumerate(on_host))
        self._compute()
        return self._transfer.read(self._output_numbers)

    def _run_lending(self, inputs: Sequence[Array]) -> list[Array]:
        """Let kernels read and write large arrays where they are; the others are copied."""
        first = len(inputs)
        large = {n: inputs[n] if n < first else np.empty(b.shape, b.dtype) for n, b in self._lendable.items()}
        # pyopencl takes no array that is read-only.
        lent = {n: array for n, array in large.items() if array.flags.carray}
        if self._lent - lent.keys():
            self._return_loans()
        super()._settle(NOWHERE)
        self._lent |= lent.keys()
        for n, array in lent.items():
            self._place(n, cl.SVM(array), 0)
        self._transfer.write((n, array) for n, array in enumerate(inputs) if n not in lent)
        self._compute()
        copied = iter(self._transfer.read([n for n in self._output_numbers if first + n not in lent]))
        return [lent[first + n] if first + n in lent else next(copied) for n in self._output_numbers]

    def _settle(self, given: Mapping[int, DeviceMemory]) -> None:
        self._return_loans()
        super()._settle(given)

    def launch(self) -> None:
        """Enqueue the kernel; see :class:`Executor`."""
        self._return_loans()
        super().launch()

    def _return_loans(self) -> None:
        """Let kernels use the model's own memory again. Not after each run: then nothing of it is in a near cache."""
        while self._lent:
            n = self._lent.pop()
            self._place(n, *self._home(n))

    def _compute(self) -> None:
        contest = self._contest
        if contest is None:
            self._run(self._way)
        elif contest.left:
            contest.left -= 1
            self._run(self._way)
        else:
            contest.run(self._run)
            self._way = contest.best

    def _run(self, way: LaunchedKernel) -> None:
        started = way.start()
        if self.executable.states:
            self._keep_states()
        way.wait(started)

    def step(self) -> None:
        """Start the next run, and keep the states that it leaves."""
        # Callers' memory may have to be copied, by way of the queue.
        self._last = self._start() if self._given else self._way.start()
        self._keep_states()

    def results(self) -> list[Array]:
        """Wait for the last run, and return its outputs."""
        if self._last is not None and self._given:
            self._last.wait()  # it was enqueued, and the way knows nothing of it
        elif self._last is not None:
            self._way.wait(self._last)
        results = super().results()
        if self._given:
            self.session.queue.finish()
        return results

    def _start(self, ready: Sequence[cl.Event] = ()) -> cl.Event:
        way = self._way
        way.leave()
        return cl.enqueue_nd_range_kernel(self.session.queue, way.kernel, (way.groups,), (1,), wait_for=ready or None)

    def _check(self, begun: float) -> None:
        """Does nothing: the queue reports every failure."""

    @cached_property
    def _profiled(self) -> tuple[cl.CommandQueue, cl.Buffer, list[cl.Kernel]]:
        """A queue, counters, and for each launch in the order a kernel that runs it alone."""
        groups = self._way.groups
        counters = self._new_counters(groups)
        kernels = [self._bound(counters, place, place + 1, groups) for place in range(len(self._claiming.order))]
        return profiling_queue(self.session), counters, kernels

    def _measure(self) -> list[Interval]:
        self.session.queue.finish()
        queue, counters, kernels = self._profiled
        cl.enqueue_fill(queue, counters, np.zeros(1, np.uint32), counters.size)  # they may be of half a run
        times = measure_launches(queue, [(kernel, (self._way.groups,), (1,), (0,)) for kernel in kernels])
        seconds = [((begin - times[0][0]) * 1e-9, (end - times[0][0]) * 1e-9) for begin, end in times]
        intervals = dict(zip(self._claiming.order, seconds, strict=True))
        return [intervals[launch] for launch in range(len(intervals))]
