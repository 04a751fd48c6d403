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
from tflgpu.runtime.opencl.session import Session

if TYPE_CHECKING:
    from pyopencl.array import Array


DeviceArray = Union[cl.Buffer, "Array"]

Queue: TypeAlias = cl.CommandQueue

# Where in a buffer a kernel may find a tensor, in bytes: the widest vectors that kernels read begin at multiples of it.
ALIGNMENT = 64


@dataclass(frozen=True)
class DeviceMemory:
    """A caller's array in row-major order; offset: in bytes."""

    buffer: cl.Buffer
    offset: int
    shape: Shape
    dtype: np.dtype[Any]

    @property
    def bytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize

    @property
    def is_aligned(self) -> bool:
        return self.offset % ALIGNMENT == 0

    def overlaps(self, other: DeviceMemory) -> bool:
        """Whether both are in one buffer and share bytes there; of sub-buffers nothing is known."""
        apart = self.offset + self.bytes <= other.offset or other.offset + other.bytes <= self.offset
        return self.buffer == other.buffer and not apart

    def read(self, queue: cl.CommandQueue) -> NDArray[Any]:
        """Its value, when all that the queue was given before is done."""
        array = np.empty(self.shape, self.dtype)
        cl.enqueue_copy(queue, array, self.buffer, src_offset=self.offset)
        return array

    def write(self, queue: cl.CommandQueue, value: NDArray[Any]) -> None:
        """Copy an array of its shape and type there, and wait."""
        cl.enqueue_copy(queue, self.buffer, np.ascontiguousarray(value), dst_offset=self.offset)


Value = NDArray[Any] | DeviceMemory  # of an input: on the host, or on the device


def is_device_array(value: object) -> TypeGuard[DeviceArray]:
    """Whether a value is an array or buffer on some device."""
    # Nobody has an Array without this module, whose import takes a while.
    arrays = sys.modules.get("pyopencl.array")
    return isinstance(value, cl.Buffer) or (arrays is not None and isinstance(value, arrays.Array))


def device_memory(role: str, info: TensorInfo, array: DeviceArray, session: Session) -> DeviceMemory:
    """The memory of a caller's array that stands for the input or output ``info``; of a buffer, all of it.

    Waits for what other queues still do to an Array. The caller checks the shape.

    Raises ValueError if it is of another size, element type or context, or not contiguous.
    """
    what, dtype = f"{role} {info.name!r}", np.dtype(info.dtype)
    if dtype.itemsize > 4:
        raise ValueError(f"{what} has element type {dtype}, which the device keeps in 32 bits; only numpy arrays do")
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
        # A pool's buffers are of another class, with which pyopencl does all that it does with this one.
        buffer = cast(cl.Buffer, array.base_data)
        memory = DeviceMemory(buffer, array.offset, array.shape, dtype)
        if array.queue != session.queue:
            array.finish()
    if memory.buffer.context != session.context:
        raise ValueError(
            f"{what} belongs to another OpenCL context than the model; `CompiledModel.queue` has the model's"
        )
    return memory
