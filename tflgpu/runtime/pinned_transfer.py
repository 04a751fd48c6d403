"""Transfers for GPUs with memory of their own, also while they compute."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Sequence
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyopencl as cl

from tflgpu.artifact.executable import Array, Binding, Executable
from tflgpu.runtime.device_memory import DeviceMemory
from tflgpu.runtime.opencl.process import starts_threads
from tflgpu.runtime.opencl.session import Session, copy, loader_function
from tflgpu.runtime.pinned_memory import ArrayPins, Lender, OutputStaging, Staging, is_mapped
from tflgpu.runtime.transfer import Numbered, Passage, Transfer
from tflgpu.target import HOST_DTYPES

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor


# Bytes for each thread at least, and threads at most. On the host of an H200 one thread copies 38 MB in 3.8 ms, four in
# 1.3 and eight in 0.9; to wake them takes 0.3 ms.
EACH, THREADS = 1 << 22, min(8, os.cpu_count() or 1)


def fill(target: Array, source: Array, each: int = EACH, threads: int = THREADS) -> None:
    """Copy an array to another one, converted to its type; large arrays in several threads.

    Args:
        target: Is written.
        source: Of the same shape.
        each: Bytes for each thread at least.
        threads: The most that copy.
    """
    parts = min(target.nbytes // each, threads)
    if parts < 2 or not starts_threads():
        target[...] = source
        return
    from concurrent.futures import wait  # small models do without

    axis = next((axis for axis, size in enumerate(target.shape) if size >= parts), 0)
    pieces = (np.array_split(array, parts, axis) for array in (target, source))
    copies = [_threads().submit(np.copyto, to, part, "unsafe") for to, part in zip(*pieces, strict=True)]
    try:
        for copy in copies:
            copy.result()
    finally:
        wait(copies)  # also after Ctrl-C: the next run fills the same memory


@cache
def _threads() -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(THREADS, "tflgpu-copy")


_POINTER, _NUMBER, _SIZE = ctypes.c_void_p, ctypes.c_uint, ctypes.c_size_t

_ARGUMENTS = _POINTER, _POINTER, _NUMBER, _SIZE, _SIZE, _POINTER, _NUMBER, _POINTER, _POINTER


class SilentCopies:
    """Copies of one in-order queue, from and to contiguous arrays in pinned memory.

    Each method starts a copy, and returns what has to live until the queue is done: the array; where OpenCL's functions
    cannot be found or refuse the copy, pyopencl's event, if it does not raise its error.
    """

    def __init__(self, queue: cl.CommandQueue) -> None:
        self._queue, self._handle = queue, queue.int_ptr
        self._write = loader_function("clEnqueueWriteBuffer", *_ARGUMENTS)
        self._read = loader_function("clEnqueueReadBuffer", *_ARGUMENTS)

    def write(self, target: cl.Buffer, source: Array, offset: int = 0) -> tuple[Any, ...]:
        """Start to copy an array to a buffer.

        Args:
            target: Gets the bytes.
            source: A C-contiguous array.
            offset: Bytes from the begin of the buffer.

        Returns:
            Objects that must live until the copy is done.
        """
        if self._enqueued(self._write, target, source, offset):
            return (source,)
        return copy(self._queue, target, source, dst_offset=offset, is_blocking=False)

    def read(self, target: Array, source: cl.Buffer) -> tuple[Any, ...]:
        """Start to copy the begin of a buffer to an array.

        Args:
            target: A C-contiguous array, which is filled.
            source: Has the bytes.

        Returns:
            Objects that must live until the copy is done.
        """
        if self._enqueued(self._read, source, target, 0):
            return (target,)
        return copy(self._queue, target, source, is_blocking=False)

    def _enqueued(self, enqueue: Any, buffer: cl.Buffer, array: Array, offset: int) -> bool:
        if enqueue is None:
            return False
        arguments = self._handle, buffer.int_ptr, False, offset, array.nbytes, _address(array), 0, None, None
        return int(enqueue(*arguments)) == 0


def _address(array: Array) -> int:
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(array.data))
    except (TypeError, ValueError):  # it is read-only, or empty; this takes four times as long
        return array.ctypes.data


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


class PinnedTransfer(Transfer):
    """Copies through pinned host memory, which a GPU reads and writes directly: once for all inputs or all outputs.

    Large outputs are not copied on the host: callers get the pinned memory itself, lent for as long as an array of it
    lives.
    """

    def __init__(self, executable: Executable, buffers: Sequence[cl.Buffer], session: Session) -> None:
        super().__init__(executable, buffers, session)
        self._executable, self._session = executable, session
        self._inputs = Staging(executable.inputs, session.queue)
        self._outputs = OutputStaging(executable, session.queue)
        self._lender = Lender(executable, session.queue)
        self._pins = ArrayPins(session.context)
        self._silent = SilentCopies(session.queue)

    def write(self, inputs: Iterable[Numbered]) -> None:
        """Copy inputs to the device by way of pinned memory, those that are pinned already directly.

        Args:
            inputs: Arrays with their numbers.
        """
        pinned = []
        staged = False
        for number, array in inputs:
            place = self._inputs.views[number]
            as_it_is = array.dtype == place.dtype and array.flags.c_contiguous
            if as_it_is and (is_mapped(array) or self._pins.hold(array)):
                pinned.append((self._executable.inputs[number], array))
            else:
                fill(place, array)
                staged = True
        if staged:
            for n, memory in self._inputs.blocks.items():
                self._copies += self._silent.write(self._buffers[n], memory)
        for binding, array in pinned:
            self._copies += self._silent.write(self._buffers[binding.buffer], array, binding.offset)
        if self._copies:
            self._queue.flush()  # so that the device begins while the host prepares the launch

    def read(self, numbers: Sequence[int]) -> list[Array]:
        """Copy outputs from the device by way of pinned memory.

        Args:
            numbers: Those of the outputs.
        """
        if not numbers:
            self._queue.finish()
            self._copies.clear()
            return []
        lent = self._lender.lend()
        for n, memory in self._outputs.places(lent).items():
            self._copies += self._silent.read(memory, self._buffers[n])
        self._queue.finish()
        self._copies.clear()
        return self._outputs.arrays(numbers, lent)

    def passage(self, inputs: Sequence[Numbered], outputs: Sequence[int]) -> Passage:
        """Return the transfers of a run that is enqueued.

        Args:
            inputs: Arrays with their numbers.
            outputs: Numbers of outputs that go to the host.
        """
        return PinnedPassage(self._slots, inputs, outputs)

    @cached_property
    def _slots(self) -> Slots:
        return Slots(self._executable, self._session)
