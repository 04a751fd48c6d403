"""The claiming executor: one launch for each inference on a CPU, whose work-groups claim the tiles of all kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from tflgpu.artifact.executable import Array, Binding, Claiming, Executable
from tflgpu.runtime.device_memory import DeviceMemory, Value
from tflgpu.runtime.executors.executor import NOWHERE, Interval, OneKernelExecutor, PreparedRun
from tflgpu.runtime.executors.resident import (
    PACE,
    LaunchedKernel,
    Pace,
    ResidentKernel,
)
from tflgpu.runtime.opencl.clock import fastest, measure_launches
from tflgpu.runtime.opencl.description import has_host_memory, has_shared_memory
from tflgpu.runtime.opencl.program import Program, make_kernel, set_number
from tflgpu.runtime.opencl.quirks import Driver, quirks_of
from tflgpu.runtime.opencl.session import Session, profiling_queue
from tflgpu.runtime.transfer import DirectTransfer, SharedTransfer, Transfer, end
from tflgpu.target import HOST_DTYPES

# Spin limit of a work-group that waits for the others, in polls: about a millisecond. Tiles take microseconds.
SPIN_LIMIT = 1 << 20


@dataclass(frozen=True)
class Worthwhile:
    """From which sizes on something is worth its time.

    Another core has to be woken, and to be met between kernels, and whether cores share a cache makes more of a
    difference than the model. To tell kernels where an array is takes as long as to copy some 100 KB that are in no
    near cache.

    Attributes:
        several: Work, in multiplications or in half bytes, for which several work-groups are always used.
        either: Work for which one and several are both timed.
        lent: Bytes of an input or output for which kernels use the caller's array itself, where they can.
    """

    several: int = 20_000_000
    either: int = 2_500_000
    lent: int = 1 << 17


WORTHWHILE = Worthwhile()


class ClaimingExecutor(OneKernelExecutor):
    """Runs all kernels in one launch, with a work-group for each core that is worthwhile."""

    def __init__(
        self,
        executable: Executable,
        claiming: Claiming,
        program: Program,
        session: Session,
        *,
        pace: Pace = PACE,
        worthwhile: Worthwhile = WORTHWHILE,
    ) -> None:
        """Prepare the executor; see :class:`Executor`.

        Args:
            executable: The kernels, their launches and their buffers.
            claiming: What the kernel that claims tiles has to be told.
            program: The program of that kernel.
            session: The context and the queues.
            pace: How long threads and work-groups wait for each other.
            worthwhile: From which sizes on several work-groups and lent arrays are used.
        """
        self._pace, self._worthwhile = pace, worthwhile
        self._claiming, self._program = claiming, program
        self._shared: dict[int, NDArray[np.uint8]] = {}  # memory that is the host's, too, by number of buffer
        super().__init__(executable, program, session)

    def _find_lendable(self) -> dict[int, Binding]:
        """Return the inputs and outputs, by binding, that kernels may find in arrays of the host that are large
        enough."""
        if not has_host_memory(self.session.device.handle):
            return {}
        places = [binding.place for binding in self._bindings]
        return {
            n: binding
            for n, binding in enumerate(self._bindings)
            if binding.exact and HOST_DTYPES[binding.element] == binding.dtype
            if end(binding) - binding.offset >= self._worthwhile.lent and places.count(binding.place) == 1
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
        candidates = self._candidates()
        self._kernel = fastest(candidates, lambda kernel: kernel.wait(kernel.start()))
        for candidate in candidates:
            candidate.leave()
        self._last: cl.Event | None = None  # of the last run
        self._follow(self._kernel.kernel)

    def _candidates(self) -> list[LaunchedKernel]:
        """One work-group or several, whichever may be the fastest."""
        launches, session = self.executable.launches, self.session
        work = sum(launch.work for launch in launches)
        most = min(1 + work // self._worthwhile.either, max(launch.groups for launch in launches))
        groups = 1 if work < session.device.limits.little_work else min(session.device.compute_units, most)
        if groups > 1 and work >= self._worthwhile.several:
            return [self._launched(groups, session.queue)]
        # Commands that are enqueued for a run have to keep the order; other threads of Python wait for one on this
        # thread.
        is_little = not self.executable.states and work < self._worthwhile.several
        aside = session.aside if self._shared and is_little else None
        quirks = quirks_of(Driver.of(session.device.handle))
        spins = session.device.compute_units > 1 and any(quirk.wakes_slowly for quirk in quirks)
        may_stay = not self._lendable  # resident work-groups do not hear of other arrays
        if groups > 1 and aside and may_stay and not spins:
            others = cl.CommandQueue(session.context, session.device.handle)
            return [self._resident(groups, aside, others, self._pace.helper_polls)]
        if aside and may_stay and spins and any(quirk.may_linger for quirk in quirks):
            alone: LaunchedKernel = self._resident(1, aside, aside, self._pace.resident_polls)
        else:
            alone = self._launched(1, aside or session.queue, spins=spins)
        return [alone] if groups == 1 else [alone, self._launched(groups, session.queue)]

    def _launched(self, groups: int, queue: cl.CommandQueue, *, spins: bool = False) -> LaunchedKernel:
        counters = self._new_counters(groups)
        return LaunchedKernel(groups, counters, self._bound(counters, groups), queue, spins)

    def _resident(
        self, groups: int, queue: cl.CommandQueue, resident_queue: cl.CommandQueue, polls: int
    ) -> ResidentKernel:
        memory = self._new_shared(4 * self._claiming.counter_words(groups)).view(np.uint32)
        memory[:] = 0
        counters = self._buffer_of(memory)
        kernel, resident = self._bound(counters, groups), self._bound(counters, groups, polls=polls)
        return ResidentKernel(groups, counters, memory, kernel, resident, queue, resident_queue, self._pace)

    def _bound(self, counters: cl.Buffer, groups: int, places: range | None = None, polls: int = 0) -> cl.Kernel:
        """Return the kernel with its arguments.

        Args:
            counters: Those of the kernel.
            groups: Number of work-groups of a run.
            places: Places in the order of launches to run; all if None.
            polls: How often a work-group polls for another run before it leaves.
        """
        kernel = make_kernel(self._program, self._claiming.function)
        first = self._bind_whole(kernel)
        kernel.set_arg(first, counters)
        places = places or range(len(self._claiming.order))
        numbers = np.int32(places.start), np.int32(places.stop), np.uint32(groups), np.uint32(polls)
        for i, number in enumerate((np.uint32(SPIN_LIMIT), *numbers), first + 1):
            set_number(kernel, i, number)
        return kernel

    def _new_counters(self, groups: int) -> cl.Buffer:
        words = np.zeros(self._claiming.counter_words(groups), np.uint32)
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        return cl.Buffer(self.session.context, flags, hostbuf=words)

    def set_spin_limit(self, polls: int) -> None:
        """Set how often a work-group polls for the others.

        Args:
            polls: With 0 it leaves as soon as it would have to wait.
        """
        set_number(self._kernel.kernel, self._kernel.kernel.num_args - 5, np.uint32(polls))

    def prepared(self, names: Sequence[str]) -> PreparedRun | None:
        """Return the run of a model of little work whose inputs and outputs are copied without the queue.

        Args:
            names: Those of the outputs.

        Returns:
            None for any other model.
        """
        transfer, executable = self._transfer, self.executable
        if not isinstance(transfer, SharedTransfer) or executable.states or self._lendable:
            return None
        if sum(launch.work for launch in executable.launches) >= self._worthwhile.several:
            return None
        places, copies = list(enumerate(transfer.inputs)), list(zip(names, transfer.copies, strict=True))
        in_flight, (start, wait) = self._in_flight.waiting, self._kernel.calls()

        def run(inputs: Sequence[Array]) -> dict[str, Array]:
            if in_flight or self._given or self._given is None:
                self._in_flight.wait_all()
                self._settle(NOWHERE)
            for number, place in places:
                place[...] = inputs[number]
            wait(start())
            outputs = {}
            for name, copy in copies:  # a comprehension would be one more call
                outputs[name] = copy()
            return outputs

        return run

    def run(self, inputs: Sequence[Value], outputs: Mapping[int, DeviceMemory] = NOWHERE) -> list[Array]:
        """Run the model once; see :class:`Executor`.

        Args:
            inputs: In order.
            outputs: Device memory for some of the outputs, by number.
        """
        if outputs or DeviceMemory in map(type, inputs):
            return super().run(inputs, outputs)
        on_host = cast("Sequence[Array]", inputs)
        self._in_flight.wait_all()
        lent = self._lend(on_host) if self._lendable else {}
        if lent or self._given or self._given is None:
            self._settle({n: _memory_of(array) for n, array in lent.items()} if lent else NOWHERE)
        numbered = enumerate(on_host)
        self._transfer.write(((n, array) for n, array in numbered if n not in lent) if lent else numbered)
        started = self._kernel.start()
        if self.executable.states:
            self._keep_states()
        self._kernel.wait(started)
        read = self._transfer.read(self._to_host)
        if not lent:
            return read
        copied, first = iter(read), len(inputs)
        return [lent[first + n] if first + n in lent else next(copied) for n in self._output_numbers]

    def _lend(self, inputs: Sequence[Array]) -> dict[int, Array]:
        """Large arrays, by binding, that kernels read and write where they are: inputs, and new ones for outputs."""
        first = len(inputs)
        large = {n: inputs[n] if n < first else np.empty(b.shape, b.dtype) for n, b in self._lendable.items()}
        # pyopencl takes no array that is read-only.
        return {n: array for n, array in large.items() if array.flags.carray}

    def launch(self) -> None:
        """Enqueue the kernel on the model's own memory; see :class:`Executor`."""
        self._settle(NOWHERE)
        super().launch()

    def step(self) -> None:
        """Start the next run, and keep the states that it leaves."""
        # Callers' memory may have to be copied, by way of the queue.
        self._last = self._start() if self._given else self._kernel.start()
        self._keep_states()

    def results(self) -> list[Array]:
        """Wait for the last run, and return its outputs."""
        if self._last is not None and self._given:
            self._last.wait()  # it was enqueued, and the kernel's waiting knows nothing of it
        elif self._last is not None:
            self._kernel.wait(self._last)
        results = super().results()
        if self._given:
            self.session.queue.finish()
        return results

    def _start(self, ready: Sequence[cl.Event] = ()) -> cl.Event:
        kernel = self._kernel
        kernel.leave()
        return cl.enqueue_nd_range_kernel(
            self.session.queue, kernel.kernel, (kernel.groups,), (1,), wait_for=ready or None
        )

    @cached_property
    def _profiled(self) -> tuple[cl.CommandQueue, cl.Buffer, list[cl.Kernel]]:
        """A queue, counters, and for each launch in the order a kernel that runs it alone."""
        groups = self._kernel.groups
        counters, places = self._new_counters(groups), range(len(self._claiming.order))
        kernels = [self._bound(counters, groups, places[n : n + 1]) for n in places]
        return profiling_queue(self.session), counters, kernels

    def _measure(self) -> list[Interval]:
        self.session.queue.finish()
        queue, counters, kernels = self._profiled
        cl.enqueue_fill(queue, counters, np.zeros(1, np.uint32), counters.size)  # they may be of half a run
        times = measure_launches(queue, [(kernel, (self._kernel.groups,), (1,), (0,)) for kernel in kernels])
        intervals = dict(zip(self._claiming.order, times, strict=True))
        return [intervals[launch] for launch in range(len(intervals))]


def _memory_of(array: Array) -> DeviceMemory:
    """Return an array of the host as memory for kernels, which take it in place of a buffer."""
    return DeviceMemory(cast("cl.Buffer", cl.SVM(array)), 0, array.shape, array.dtype)
