"""Buffers of an executable on a device, and the memory of states that callers hold."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyopencl as cl

from tflgpu.artifact.artifact import BoundState
from tflgpu.artifact.executable import Array, Binding, DeviceBuffer
from tflgpu.errors import DeviceError
from tflgpu.graph.layout import Geometry, pack, unpack
from tflgpu.runtime.opencl.session import Session, copy
from tflgpu.target import HOST_DTYPES


def allocated(
    wanted: DeviceBuffer, session: Session, new_buffer: Callable[[int], cl.Buffer], what: str = "activations"
) -> cl.Buffer:
    """Return a buffer of constants, or of zeros, because nothing writes the lanes past the last channel of an input.

    A buffer that other executables share is there already.

    Args:
        wanted: Its size, and its content if it has constants.
        session: The device.
        new_buffer: Makes a buffer of a number of bytes.
        what: Its use, for messages.

    Raises:
        DeviceError: Memory runs out, or the device has no buffers of this size.
    """
    if wanted.shared is not None:
        return _shared(wanted, wanted.shared, session)
    flags, device = cl.mem_flags, session.device
    what = what if wanted.data is None else "weights"
    if wanted.bytes > device.limits.allocation_bytes:
        raise DeviceError(
            f"{device.name} has no buffers of more than {device.limits.allocation_bytes} bytes; {what} need one of "
            f"{wanted.bytes}"
        )
    try:
        if wanted.data is not None:
            return cl.Buffer(session.context, flags.READ_ONLY | flags.COPY_HOST_PTR, hostbuf=wanted.data)
        buffer = new_buffer(wanted.bytes)
        cl.enqueue_fill(session.queue, buffer, np.zeros(1, np.uint8), wanted.bytes)
    except cl.Error as error:
        raise DeviceError(f"{device.name} has no {wanted.bytes} bytes left for {what}: {error}") from error
    return buffer


def _shared(wanted: DeviceBuffer, number: int, session: Session) -> cl.Buffer:
    """Raise DeviceError if there is no such buffer: a file of the cache may say anything."""
    shared = session.shared[number : number + 1] if number >= 0 else ()
    if not shared or shared[0].size < wanted.bytes:
        raise DeviceError(f"shared weights of {wanted.bytes} bytes are not on the device")
    return shared[0]


class HeldState:
    """One value on the device, for any executable that has a state of this form. Zeros at first.

    Kernels write the next value over the last one, or to a second buffer, which changes places with the first.
    """

    def __init__(self, form: BoundState, session: Session) -> None:
        """Raise DeviceError if memory runs out."""
        self.form, self._session = form, session
        self.current = self._allocate()
        self._spare: cl.Buffer | None = None

    @property
    def spare(self) -> cl.Buffer:
        """Where kernels write the next value that do not write it in place. Raises DeviceError if memory runs out."""
        if self._spare is None:
            self._spare = self._allocate()
        return self._spare

    def swap(self) -> None:
        """Let the value that was written to :attr:`spare` be the current one."""
        self.current, self._spare = self.spare, self.current

    def fits(self, form: BoundState, session: Session) -> bool:
        """Whether an executable can have the memory.

        Args:
            form: The executable's state.
            session: The executable's; the memory belongs to one queue.
        """
        mine = self.form
        return (mine.binding, mine.bytes) == (form.binding, form.bytes) and self._session.queue is session.queue

    def write(self, value: Array) -> None:
        """Set the value, which is copied before this returns.

        Args:
            value: Of the state's shape.
        """
        for event in write_value(self._session.queue, self.current, self.form.binding, value):
            event.wait()

    def clear(self) -> None:
        """Set the value to zeros."""
        cl.enqueue_fill(self._session.queue, self.current, np.zeros(1, np.uint8), self.form.bytes)

    def read(self) -> Array:
        """Wait for the queue. Returns the value as a new array."""
        return read_value(self._session.queue, self.current, self.form.binding)

    def _allocate(self) -> cl.Buffer:
        context = self._session.context

        def new(size: int) -> cl.Buffer:
            return cl.Buffer(context, cl.mem_flags.READ_WRITE, size)

        return allocated(DeviceBuffer(self.form.bytes), self._session, new, "states")


def write_value(queue: cl.CommandQueue, buffer: cl.Buffer, binding: Binding, value: Array) -> tuple[cl.Event, ...]:
    """Copy the value of a state to its memory, in PHWC4.

    Args:
        queue: Of the memory's context.
        buffer: The memory.
        binding: The element type on the device.
        value: A row-major array.

    Returns:
        The events of the copy.
    """
    return copy(queue, buffer, pack(np.asarray(value, HOST_DTYPES[binding.element])))


def read_value(queue: cl.CommandQueue, buffer: cl.Buffer, binding: Binding) -> Array:
    """Return the value of a state as a new array, when all earlier commands of the queue are done.

    Args:
        queue: Of the memory's context.
        buffer: The memory, in PHWC4.
        binding: The shape, and the element types on the device and of the result.
    """
    elements = np.empty(Geometry(binding.shape).elements, HOST_DTYPES[binding.element])
    copy(queue, elements, buffer)
    return np.ascontiguousarray(unpack(elements, binding.shape), binding.dtype).reshape(binding.shape)
