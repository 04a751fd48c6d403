"""The launch executor: one launch for each kernel, with events only where somebody wants them.

pyopencl always asks for an event. On an H200 a kernel with an event is known to be over 2 us later, and the next one
begins 3 us later: the driver lets the GPU write down when each ended.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cached_property, partial

import numpy as np
import pyopencl as cl

from tflgpu.artifact.executable import Array
from tflgpu.runtime.executors.executor import Executor, Interval, Use
from tflgpu.runtime.opencl.clock import Launch, measure_launches
from tflgpu.runtime.opencl.program import Program, make_kernel, set_number
from tflgpu.runtime.opencl.session import Session, copy, loader_function, profiling_queue
from tflgpu.runtime.pinned_transfer import PinnedTransfer
from tflgpu.runtime.transfer import DirectTransfer, Transfer
from tflgpu.target import HOST_DTYPES, ElementType

_POINTER, _NUMBER = ctypes.c_void_p, ctypes.c_uint


class LaunchQueue:
    """Launches on a session's in-order queue."""

    def __init__(self, session: Session, launches: Sequence[Launch]) -> None:
        self._launches = launches
        self._queue = session.queue
        self._silent = [silent_launch(session, launch) for launch in launches]

    def start(self, ready: Sequence[cl.Event] = ()) -> cl.Event | None:
        """Enqueue all launches.

        Args:
            ready: Events that the first launch waits for.

        Returns:
            An event of the last launch; None if there is none.
        """
        last, before, final = None, ready or None, len(self._launches) - 1
        for number, launch in enumerate(self._launches):
            if before or number == final:
                last = cl.enqueue_nd_range_kernel(self._queue, *launch, wait_for=before)
                before = None
            else:
                self._silent[number]()
        return last

    def start_silently(self) -> None:
        """Enqueue the launches that have no event."""
        for launch in self._silent:
            launch()


def silent_launch(session: Session, launch: Launch) -> Callable[[], object]:
    """Return what enqueues a launch without an event on a GPU, and with one elsewhere. It raises pyopencl's errors."""
    queue = session.queue
    function = loader_function("clEnqueueNDRangeKernel")
    with_event = partial(cl.enqueue_nd_range_kernel, queue, *launch)
    if session.device.type != "gpu" or function is None:
        return with_event
    kernel, size, local_size, offset = launch
    sizes = [(ctypes.c_size_t * len(numbers))(*numbers) for numbers in (offset, size, local_size)]
    handles, nothing = [_POINTER(each.int_ptr) for each in (queue, kernel)], _POINTER()
    # All are C's types already: to convert nine arguments takes longer than to call.
    enqueue = partial(function, *handles, _NUMBER(len(size)), *sizes, _NUMBER(0), nothing, nothing)

    def without_event() -> None:
        if enqueue():
            with_event()  # fails as well, and says why

    return without_event


class LaunchExecutor(Executor):
    """Launches every kernel by itself, on one in-order queue."""

    def _make_transfer(self) -> Transfer:
        device = self.session.device
        kind = PinnedTransfer if device.type == "gpu" and not device.limits.shares_memory else DirectTransfer
        return kind(self.executable, self._buffers, self.session)

    def _bind(self, program: Program) -> None:
        self._launches: list[Launch] = []
        uses = {self._bindings[number].place: uses for number, uses in self._uses.items()}
        for launch in self.executable.launches:
            kernel = make_kernel(program, launch.function)
            for i, slot in enumerate(launch.arguments):
                kernel.set_arg(2 * i, self._buffers[slot.buffer])
                set_number(kernel, 2 * i + 1, self._offset_type(slot.offset))
                if slot.buffer in self._held_uses:
                    self._held_uses[slot.buffer].append((kernel, 2 * i))
                if slot.place in uses:
                    uses[slot.place].append(Use(kernel, 2 * i, slot.item_bytes))
            # Every other one goes through its tiles backwards: a cache still has what the one before wrote last.
            first_tile = launch.groups - 1 if len(self._launches) % 2 else 0
            self._launches.append((kernel, (launch.groups * launch.local_size,), (launch.local_size,), (first_tile,)))
        self._launch_queue = LaunchQueue(self.session, self._launches)

    def _start(self, ready: Sequence[cl.Event] = ()) -> cl.Event | None:
        return self._launch_queue.start(ready)

    def _start_silently(self) -> None:
        self._launch_queue.start_silently()

    @cached_property
    def _profiling_queue(self) -> cl.CommandQueue:
        return profiling_queue(self.session)

    def _measure(self) -> list[Interval]:
        self.session.queue.finish()
        return measure_launches(self._profiling_queue, self._launches)

    def observe(
        self, inputs: Sequence[Array], written: Sequence[tuple[ElementType, int]], seen: Callable[[int, Array], None]
    ) -> list[Array]:
        """Run once, and show the result of each launch.

        Args:
            inputs: In order.
            written: Type and number of the elements that each launch writes through its first argument.
            seen: Is called with the number of each launch and the elements that it has written.

        Returns:
            The outputs in order.
        """
        self.write(inputs)
        queue = self.session.queue
        for number, (element, count) in enumerate(written):
            cl.enqueue_nd_range_kernel(queue, *self._launches[number])
            elements = np.empty(count, HOST_DTYPES[element])
            buffer, offset = self.executable.launches[number].arguments[0].place
            copy(queue, elements, self._buffers[buffer], src_offset=offset)
            seen(number, elements)
        self._keep_states()
        return self._transfer.read(self._output_numbers)
