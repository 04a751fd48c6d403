"""Between the caller's arrays and the device's buffers of inputs and outputs."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import prod

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from tflgpu.executable import Array, Executable, Port
from tflgpu.runtime.session import Session
from tflgpu.target import HOST_DTYPES


class Transfer(ABC):
    """How the inputs of one executable get to the device, and its outputs back. Raises what pyopencl raises."""

    def __init__(self, executable: Executable, buffers: Sequence[cl.Buffer], session: Session) -> None:
        self._executable, self._buffers, self._queue = executable, buffers, session.queue

    @abstractmethod
    def write(self, inputs: Sequence[Array]) -> None:
        """Start to copy arrays in the order of the inputs."""

    @abstractmethod
    def read(self) -> list[Array]:
        """Wait for the queue; fresh arrays in the order of the outputs."""


class DirectTransfer(Transfer):
    """From and to the arrays themselves, where the device shares the host's memory and one copy is all it takes."""

    def write(self, inputs: Sequence[Array]) -> None:
        ports = self._executable.inputs
        # The queue reads them until it has been waited for.
        self._held = [np.ascontiguousarray(a, HOST_DTYPES[p.element]) for a, p in zip(inputs, ports, strict=True)]
        for port, array in zip(ports, self._held, strict=True):
            cl.enqueue_copy(self._queue, self._buffers[port.buffer], array, dst_offset=port.offset, is_blocking=False)

    def read(self) -> list[Array]:
        ports = self._executable.outputs
        outputs = [np.empty(p.shape, HOST_DTYPES[p.element]) for p in ports]
        for port, array in zip(ports, outputs, strict=True):
            cl.enqueue_copy(self._queue, array, self._buffers[port.buffer], src_offset=port.offset, is_blocking=False)
        self._queue.finish()
        self._held.clear()
        return [a.astype(p.dtype, copy=False) for a, p in zip(outputs, ports, strict=True)]


class PinnedTransfer(Transfer):
    """Through pinned host memory, which a GPU reads and writes by itself: one copy for all inputs, one for all outputs.

    Large outputs are that memory itself, lent to the caller for as long as any array of it lives.
    header: what stood at the beginning of the buffer of results when :meth:`read` last waited.
    """

    def __init__(self, executable: Executable, buffers: Sequence[cl.Buffer], session: Session) -> None:
        super().__init__(executable, buffers, session)
        self._written = sorted({p.buffer for p in executable.inputs})
        self._read = sorted({p.buffer for p in executable.outputs} | {executable.results})
        numbers = {*self._written, *self._read}
        self._staging = {n: _pinned(session, executable.buffers[n].bytes) for n in numbers}
        self._inputs = [_view(self._staging[p.buffer], p) for p in executable.inputs]
        self._lender = _Lender(session, executable.buffers[executable.results].bytes)
        self.header = np.zeros(2, np.uint32)

    def write(self, inputs: Sequence[Array]) -> None:
        for view, array in zip(self._inputs, inputs, strict=True):
            np.copyto(view, array, casting="unsafe")  # 64-bit integers have 32 bits on the device
        for number in self._written:
            cl.enqueue_copy(self._queue, self._buffers[number], self._staging[number], is_blocking=False)

    def read(self) -> list[Array]:
        ports, results = self._executable.outputs, self._executable.results
        lent = self._lender.lend()
        memory = self._staging if lent is None else {**self._staging, results: lent}
        for number in self._read:
            cl.enqueue_copy(self._queue, memory[number], self._buffers[number], is_blocking=False)
        self._queue.finish()
        self.header[:] = memory[results][: self.header.nbytes].view(np.uint32)
        return [_view(memory[p.buffer], p).astype(p.dtype, copy=lent is None or p.buffer != results) for p in ports]


class _Lender:
    """Pinned memory for callers to keep: copying megabytes out of it would take longer than all kernels."""

    WORTHWHILE = 1 << 18  # bytes
    AT_MOST = 4  # blocks: a caller who keeps all outputs must not take all of the host's memory

    def __init__(self, session: Session, size: int) -> None:
        self._session, self._size = session, size
        self._made = 0
        self._free: list[NDArray[np.uint8]] = []

    def lend(self) -> NDArray[np.uint8] | None:
        """A block that comes back when the last array of it is gone; None if it is not worthwhile, or none is left."""
        if self._size < self.WORTHWHILE or (not self._free and self._made == self.AT_MOST):
            return None
        if not self._free:
            self._free.append(_pinned(self._session, self._size))
            self._made += 1
        block = self._free.pop()
        # Arrays made of this one refer to it, as it does not refer to another array: it is the last to go.
        lent = np.frombuffer(block.data, np.uint8)
        weakref.finalize(lent, self._free.append, block).atexit = False
        return lent


def _view(memory: NDArray[np.uint8], port: Port) -> Array:
    """The array of one port in its buffer's memory."""
    dtype = np.dtype(HOST_DTYPES[port.element])
    return memory[port.offset : port.offset + prod(port.shape) * dtype.itemsize].view(dtype).reshape(port.shape)


def _pinned(session: Session, size: int) -> NDArray[np.uint8]:
    """Zeros in host memory that stays mapped as long as the array lives."""
    flags, access = cl.mem_flags.READ_WRITE | cl.mem_flags.ALLOC_HOST_PTR, cl.map_flags.READ | cl.map_flags.WRITE
    buffer = cl.Buffer(session.context, flags, size)
    array: NDArray[np.uint8]
    array, _ = cl.enqueue_map_buffer(session.queue, buffer, access, 0, (size,), np.dtype(np.uint8))  # type: ignore[arg-type]
    array[:] = 0
    return array
