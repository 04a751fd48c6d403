"""Copies between callers' arrays and the device's buffers of inputs and outputs."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from math import prod

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from tflgpu.artifact.executable import Array, Binding, Executable
from tflgpu.graph.layout import Shape
from tflgpu.runtime.opencl.copies import copy
from tflgpu.runtime.opencl.session import Session
from tflgpu.runtime.pinning import ArrayPins
from tflgpu.target import HOST_DTYPES

Numbered = tuple[int, Array]  # an input's number and value


class Transfer(ABC):
    """Copies the inputs of one executable to the device, and its outputs back. Raises pyopencl's errors.

    Deleting pyopencl's event of a copy waits for the copy, so the events of a run are kept until the run is over.
    """

    def __init__(self, executable: Executable, buffers: Sequence[cl.Buffer], session: Session) -> None:
        self._buffers, self._queue = buffers, session.queue
        self._output_types = [np.dtype(p.dtype) for p in executable.outputs]
        self._copies: list[cl.Event] = []

    @abstractmethod
    def write(self, inputs: Iterable[Numbered]) -> None:
        """Start to copy arrays to the inputs of these numbers; other inputs keep their values."""

    @abstractmethod
    def read(self, numbers: Sequence[int]) -> list[Array]:
        """Wait for the queue. Returns new arrays of the outputs of these numbers."""


class DirectTransfer(Transfer):
    """Copies from and to the callers' arrays directly, for devices that share the host's memory."""

    def __init__(self, executable: Executable, buffers: Sequence[cl.Buffer], session: Session) -> None:
        super().__init__(executable, buffers, session)
        self._inputs = [(p, np.dtype(HOST_DTYPES[p.element])) for p in executable.inputs]
        self._outputs = [(p, np.dtype(HOST_DTYPES[p.element])) for p in executable.outputs]

    def write(self, inputs: Iterable[Numbered]) -> None:
        for number, given in inputs:
            binding, element = self._inputs[number]
            array, buffer = np.ascontiguousarray(given, element), self._buffers[binding.buffer]
            # The event keeps the array alive, too.
            self._copies += copy(self._queue, buffer, array, dst_offset=binding.offset, is_blocking=False)

    def read(self, numbers: Sequence[int]) -> list[Array]:
        if not numbers:
            self._queue.finish()
        outputs = [self._output(number) for number in numbers]
        self._copies.clear()
        return outputs

    def _output(self, number: int) -> Array:
        binding, element = self._outputs[number]
        array = np.empty(binding.shape, element)
        copy(self._queue, array, self._buffers[binding.buffer], src_offset=binding.offset)
        return array.astype(self._output_types[number], copy=False)


class SharedTransfer(Transfer):
    """Copies to and from memory that is the host's and the device's at once, without the queue."""

    def __init__(
        self,
        executable: Executable,
        buffers: Sequence[cl.Buffer],
        session: Session,
        memory: Mapping[int, NDArray[np.uint8]],
    ) -> None:
        """memory: of the buffers with inputs and outputs, by number."""
        super().__init__(executable, buffers, session)
        self._inputs = [_view(memory[p.buffer], p) for p in executable.inputs]
        self._outputs = [_view(memory[p.buffer], p) for p in executable.outputs]
        self._queue.finish()  # which sets the memory to zero; writes do not wait for the queue

    def write(self, inputs: Iterable[Numbered]) -> None:
        for number, given in inputs:
            self._inputs[number][...] = given

    def read(self, numbers: Sequence[int]) -> list[Array]:
        self._queue.finish()
        return [self._outputs[number].astype(self._output_types[number]) for number in numbers]


class PinnedTransfer(Transfer):
    """Copies through pinned host memory, which a GPU reads and writes directly: once for all inputs or all outputs.

    Large outputs are not copied on the host: callers get the pinned memory itself, lent for as long as an array of it
    lives. header: first words of the buffer of results, as of the last :meth:`read`.
    """

    def __init__(self, executable: Executable, buffers: Sequence[cl.Buffer], session: Session) -> None:
        super().__init__(executable, buffers, session)
        self._sources, self._targets, self._results = executable.inputs, executable.outputs, executable.results
        self._written = sorted({p.buffer for p in executable.inputs})
        self._states = sorted({p.buffer for p in executable.outputs} - {self._results})
        numbers = {*self._written, *self._states, self._results}
        self._staging = {n: _pinned(session, executable.buffers[n].bytes) for n in numbers}
        self._inputs = [_view(self._staging[p.buffer], p) for p in executable.inputs]
        self._outputs = [_view(self._staging[p.buffer], p) for p in executable.outputs]
        self._lender = _Lender(session, executable.buffers[self._results].bytes)
        self._pins = ArrayPins(session.context)
        self.header = np.zeros(2, np.uint32)

    def write(self, inputs: Iterable[Numbered]) -> None:
        pinned = []
        staged = False
        for number, array in inputs:
            view = self._inputs[number]
            as_it_is = array.dtype == view.dtype and array.flags.c_contiguous
            if as_it_is and (_is_mapped(array) or self._pins.hold(array)):
                pinned.append((self._sources[number], array))
            else:
                view[...] = array
                staged = True
        if staged:
            for n in self._written:
                self._copies.append(cl.enqueue_copy(self._queue, self._buffers[n], self._staging[n], is_blocking=False))
        for binding, array in pinned:
            buffer = self._buffers[binding.buffer]
            self._copies += copy(self._queue, buffer, array, dst_offset=binding.offset, is_blocking=False)
        self._queue.flush()  # so that the device begins while the host prepares the launch

    def read(self, numbers: Sequence[int]) -> list[Array]:
        if not numbers:
            cl.enqueue_copy(self._queue, self.header, self._buffers[self._results])
            self._copies.clear()
            return []
        lent = self._lender.lend()
        results = self._staging[self._results] if lent is None else lent
        for n, memory in [*((n, self._staging[n]) for n in self._states), (self._results, results)]:
            self._copies.append(cl.enqueue_copy(self._queue, memory, self._buffers[n], is_blocking=False))
        self._queue.finish()
        self._copies.clear()
        self.header[:] = results[: self.header.nbytes].view(np.uint32)
        return [self._output(number, lent) for number in numbers]

    def _output(self, number: int, lent: NDArray[np.uint8] | None) -> Array:
        """The output in lent memory, if it is there; else a copy."""
        binding, dtype = self._targets[number], self._output_types[number]
        if lent is None or binding.buffer != self._results:
            return self._outputs[number].astype(dtype)
        return _view(lent, binding).astype(dtype, copy=False)


class _Lender:
    """Lends pinned memory to callers: copying megabytes out of it would take longer than all kernels."""

    WORTHWHILE = 1 << 18  # bytes
    AT_MOST = 4  # blocks: a caller who keeps all outputs must not take all of the host's memory

    def __init__(self, session: Session, size: int) -> None:
        self._session, self._size = session, size
        self._made = 0
        self._free: list[NDArray[np.uint8]] = []

    def lend(self) -> NDArray[np.uint8] | None:
        """A block, lent until the last array of it is freed; None if it is not worthwhile, or all are lent."""
        if self._size < self.WORTHWHILE or (not self._free and self._made == self.AT_MOST):
            return None
        if not self._free:
            self._free.append(_pinned(self._session, self._size))
            self._made += 1
        block = self._free.pop()
        # The base of ``lent`` is no array, so all views of it refer to ``lent`` itself, and it is freed last.
        lent = np.frombuffer(block.data, np.uint8)
        weakref.finalize(lent, self._free.append, block).atexit = False
        return lent


def _view(memory: NDArray[np.uint8], binding: Binding) -> Array:
    """The array of one binding in its buffer's memory."""
    dtype = np.dtype(HOST_DTYPES[binding.element])
    return (
        memory[binding.offset : binding.offset + prod(binding.shape) * dtype.itemsize]
        .view(dtype)
        .reshape(binding.shape)
    )


def pinned_array(session: Session, shape: Shape, dtype: str) -> Array:
    """Zeros in pinned memory, which a GPU of this session reads directly: a run does not copy them on the host."""
    kind = np.dtype(dtype)
    return _pinned(session, prod(shape) * kind.itemsize).view(kind).reshape(shape)


def _is_mapped(array: Array) -> bool:
    """Whether this is a view of memory that OpenCL has mapped."""
    return isinstance(array.base, np.ndarray) and isinstance(array.base.base, cl.MemoryMap)


def _pinned(session: Session, size: int) -> NDArray[np.uint8]:
    """``size`` zero bytes in pinned host memory, which stays mapped as long as the array lives."""
    flags, access = cl.mem_flags.READ_WRITE | cl.mem_flags.ALLOC_HOST_PTR, cl.map_flags.READ | cl.map_flags.WRITE
    buffer = cl.Buffer(session.context, flags, size)
    array: NDArray[np.uint8]
    array, _ = cl.enqueue_map_buffer(session.queue, buffer, access, 0, (size,), np.dtype(np.uint8))  # type: ignore[arg-type]
    array[:] = 0
    return array
