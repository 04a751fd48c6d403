"""Copies to and from a GPU with memory of its own while it computes: on queues and in memory of their own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyopencl as cl

from tflgpu.artifact.executable import Array, Binding, Executable
from tflgpu.runtime.device_memory import DeviceMemory
from tflgpu.runtime.opencl.session import Session
from tflgpu.runtime.transfer.large_copies import fill
from tflgpu.runtime.transfer.pinned_memory import Lender, OutputStaging, Staging
from tflgpu.runtime.transfer.transfer import Numbered, Passage
from tflgpu.target import HOST_DTYPES


class _Slot:
    """Memory for one inference: pinned, and on the device, in buffers like the executable's own.

    sources, targets: inputs and outputs on the device, by number.
    """

    def __init__(self, executable: Executable, queue: cl.CommandQueue) -> None:
        """queue: whose commands this waits for."""
        self.inputs, self.outputs = Staging(executable.inputs, queue), OutputStaging(executable, queue)
        self.input_buffers, self.output_buffers = (_buffers(s, queue.context) for s in (self.inputs, self.outputs))
        self.sources = [_memory(self.input_buffers[p.buffer], p) for p in executable.inputs]
        self.targets = [_memory(self.output_buffers[p.buffer], p) for p in executable.outputs]


def _buffers(staging: Staging, context: cl.Context) -> dict[int, cl.Buffer]:
    blocks = staging.blocks.items()
    return {n: cl.Buffer(context, cl.mem_flags.READ_WRITE, memory.nbytes) for n, memory in blocks}


def _memory(buffer: cl.Buffer, binding: Binding) -> DeviceMemory:
    return DeviceMemory(buffer, binding.offset, binding.shape, np.dtype(HOST_DTYPES[binding.element]))


class Slots:
    """Slots for the inferences in flight, which are made as they are needed. inward, outward: queues for the copies."""

    def __init__(self, executable: Executable, session: Session) -> None:
        self._executable = executable
        self.inward, self.outward = (cl.CommandQueue(session.context) for _ in range(2))
        self.kernels = session.queue
        self.lender = Lender(executable, self.inward)
        self._spare: list[_Slot] = []

    def take(self) -> _Slot:
        """Return a slot that no run uses."""
        return self._spare.pop() if self._spare else _Slot(self._executable, self.inward)

    def put_back(self, slot: _Slot) -> None:
        """Let another run use a slot.

        Args:
            slot: No run uses it any more.
        """
        self._spare.append(slot)


class _Lease:
    """A slot, which another inference may have once nothing refers to its lease."""

    def __init__(self, slot: _Slot, slots: Slots) -> None:
        self.slot, self._slots = slot, slots

    def __del__(self) -> None:
        self._slots.put_back(self.slot)


class PinnedPassage(Passage):
    """By way of a slot."""

    def __init__(self, slots: Slots, inputs: Sequence[Numbered], outputs: Sequence[int]) -> None:
        super().__init__()
        self._slots, self._numbers = slots, outputs
        self._lease = _Lease(slots.take(), slots)
        slot = self._lease.slot
        self._events: list[cl.Event] = []
        self._lent = slots.lender.lend() if outputs else None
        self.inputs = {number: slot.sources[number] for number, _ in inputs}
        self.outputs = {number: slot.targets[number] for number in outputs}
        for number, array in inputs:
            fill(slot.inputs.views[number], array)
        if inputs:
            for n, memory in slot.inputs.blocks.items():
                self.ready.append(cl.enqueue_copy(slots.inward, slot.input_buffers[n], memory, is_blocking=False))
            slots.inward.flush()

    def leave(self, last: cl.Event | None) -> cl.Event | None:
        """Enqueue the copies of the outputs.

        Args:
            last: The event that they wait for; None for none.

        Returns:
            The event of the last copy.
        """
        if not self._numbers:
            return last
        slot, before = self._lease.slot, None if last is None else [last]
        self._slots.kernels.flush()
        for n, memory in slot.outputs.places(self._lent).items():
            source = slot.output_buffers[n]
            event = cl.enqueue_copy(self._slots.outward, memory, source, is_blocking=False, wait_for=before)
            self._events.append(event)
        self._slots.outward.flush()
        return self._events[-1]

    def arrays(self) -> list[Array]:
        """Return the outputs, once they have arrived."""
        return self._lease.slot.outputs.arrays(self._numbers, self._lent)
