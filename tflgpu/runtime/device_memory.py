"""Inputs and outputs that live on the device: the caller's pyopencl buffers and arrays."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard, Union, cast

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from tflgpu.graph.layout import Shape
from tflgpu.model.tensor_info import TensorInfo
from tflgpu.runtime.opencl.session import Session, copy

if TYPE_CHECKING:
    from pyopencl.array import Array


DeviceArray = Union[cl.Buffer, "Array"]

Queue: TypeAlias = cl.CommandQueue

Buffer: TypeAlias = cl.Buffer

Place = tuple[cl.Buffer, int]  # and an offset in bytes

# Bytes. A tensor for kernels must begin at a multiple of this, the size of the widest vectors that they read.
ALIGNMENT = 64


@dataclass(frozen=True)
class DeviceMemory:
    """A caller's array on the device, in row-major order. offset: of its first element in the buffer, in bytes."""

    buffer: cl.Buffer
    offset: int
    shape: Shape
    dtype: np.dtype[Any]

    @property
    def bytes(self) -> int:
        """Bytes of its elements."""
        return prod(self.shape) * self.dtype.itemsize

    @property
    def place(self) -> Place:
        """The buffer, and the offset in bytes."""
        return self.buffer, self.offset

    @property
    def is_aligned(self) -> bool:
        """Whether kernels can access it where it is."""
        return self.offset % ALIGNMENT == 0

    def overlaps(self, other: DeviceMemory) -> bool:
        """Whether both share bytes of one buffer, of which either may have a sub-buffer.

        Args:
            other: Memory of the same context.
        """
        (buffer, begin), (other_buffer, other_begin) = self._origin, other._origin
        apart = begin + self.bytes <= other_begin or other_begin + other.bytes <= begin
        return buffer == other_buffer and not apart

    @property
    def _origin(self) -> tuple[object, int]:
        """The buffer that was allocated, by its handle, and where the first element is in it."""
        if not isinstance(self.buffer, cl.MemoryObjectHolder):  # an array of the host, lent to kernels
            return self.buffer, self.offset
        whole = cast("cl.Buffer | None", self.buffer.get_info(cl.mem_info.ASSOCIATED_MEMOBJECT))
        if whole is None:
            return self.buffer.int_ptr, self.offset
        return whole.int_ptr, self.offset + cast("int", self.buffer.get_info(cl.mem_info.OFFSET))

    def read(self, queue: cl.CommandQueue) -> NDArray[Any]:
        """Return a copy on the host, taken when all earlier commands of the queue are done.

        Args:
            queue: Of the memory's context.
        """
        array = np.empty(self.shape, self.dtype)
        copy(queue, array, self.buffer, src_offset=self.offset)
        return array

    def write(self, queue: cl.CommandQueue, value: NDArray[Any]) -> None:
        """Copy an array into the memory, and wait until it is there.

        Args:
            queue: Of the memory's context.
            value: Of the memory's shape and type.
        """
        # A blocking write of Intel's runtime ends before: as soon as the array on the host may change.
        for event in copy(queue, self.buffer, np.ascontiguousarray(value), dst_offset=self.offset):
            event.wait()


Value = NDArray[Any] | DeviceMemory  # of an input: on the host, or on the device


def is_device_array(value: object) -> TypeGuard[DeviceArray]:
    """Whether a value is an array or buffer on some device.

    Args:
        value: A caller's value; it may be anything.
    """
    # The caller has no Array if this module is not imported. Importing it here would take time.
    arrays = sys.modules.get("pyopencl.array")
    return isinstance(value, cl.Buffer) or (arrays is not None and isinstance(value, arrays.Array))


def device_memory(role: str, info: TensorInfo, array: DeviceArray, session: Session) -> DeviceMemory:
    """Return the memory of a caller's array for an input or output; a buffer is taken as a whole.

    Waits for the commands of an Array's own queue. The caller checks the shape.

    Args:
        role: ``"input"`` or ``"output"``, for messages.
        info: The input or output.
        array: An Array or a Buffer of pyopencl.
        session: The model's.

    Raises:
        ValueError: The array has another size, element type or context, or is not contiguous.
    """
    what, dtype = f"{role} {info.name!r}", np.dtype(info.dtype)
    if isinstance(array, cl.Buffer):
        memory = DeviceMemory(array, 0, info.shape, dtype)
        if array.size != memory.bytes:
            raise ValueError(f"{what} is a buffer of {array.size} bytes; {memory.bytes} were expected")
    else:
        if array.dtype != dtype:
            raise ValueError(f"{what} has element type {array.dtype}; {dtype} was expected")
        if not array.flags.c_contiguous:
            raise ValueError(f"{what} is not contiguous in row-major order")
        if not isinstance(array.base_data, cl.MemoryObjectHolder):
            raise ValueError(f"{what} is shared virtual memory; a buffer was expected")
        # Buffers of a memory pool are of another class, which pyopencl accepts in the same places.
        buffer = cast(cl.Buffer, array.base_data)
        memory = DeviceMemory(buffer, array.offset, array.shape, dtype)
        if array.queue != session.queue:
            array.finish()
    if memory.buffer.context != session.context:
        raise ValueError(
            f"{what} belongs to another OpenCL context than the model; `CompiledModel.queue` has the model's"
        )
    return memory
