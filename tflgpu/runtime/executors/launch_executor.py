"""The launch executor: one launch for each kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
import pyopencl as cl

from tflgpu.artifact.executable import Array
from tflgpu.runtime.executors.executor import Executor, Interval, Use
from tflgpu.runtime.executors.launch_queue import LaunchQueue
from tflgpu.runtime.opencl.clock import Launch, measure_launches
from tflgpu.runtime.opencl.copies import copy
from tflgpu.runtime.opencl.program import Program, make_kernel, set_number
from tflgpu.runtime.opencl.session import profiling_queue
from tflgpu.runtime.transfer.direct_transfer import DirectTransfer
from tflgpu.runtime.transfer.pinned_transfer import PinnedTransfer
from tflgpu.runtime.transfer.transfer import Transfer
from tflgpu.target import HOST_DTYPES, ElementType


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
