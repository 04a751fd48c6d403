"""Where the elements of a :class:`TensorBuffer` are."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tflgpu.graph.layout import Shape

ALIGNMENT = 64  # of memory that is made here, as LiteRT's has


@cache
def name_of(dtype: np.dtype[Any]) -> str:
    """Return numpy's name of an element type, which numpy would make anew each time.

    Args:
        dtype: The element type.
    """
    return dtype.name


@dataclass(frozen=True, eq=False)
class Memory:
    """An array of the host, C-contiguous, or one of the device.

    dtype_name: by numpy's names. shape: as LiteRT describes the buffer, which may be flat where the array is not.
    """

    array: NDArray[Any] | None
    device_array: Any
    dtype_name: str
    shape: Shape

    @staticmethod
    def on_host(array: NDArray[Any], shape: Shape) -> Memory:
        """Return memory that a program has.

        Args:
            array: Owns the memory. It may have another shape than the tensor.
            shape: The tensor's shape.
        """
        return Memory(array, None, name_of(array.dtype), shape)

    @staticmethod
    def on_device(array: Any) -> Memory:
        """Return memory of an Array of pyopencl.

        Args:
            array: Owns the memory, and has the tensor's shape.
        """
        return Memory(None, array, name_of(np.dtype(array.dtype)), tuple(array.shape))

    @staticmethod
    def zeros(shape: Shape, dtype: np.dtype[Any]) -> Memory:
        """Return new memory of the host, aligned as LiteRT's is.

        Args:
            shape: The tensor's shape.
            dtype: Its element type.
        """
        size = int(np.prod(shape)) * dtype.itemsize
        raw = np.zeros(size + ALIGNMENT, np.uint8)
        begin = -raw.ctypes.data % ALIGNMENT
        return Memory.on_host(raw[begin : begin + size].view(dtype).reshape(shape), shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return int(self.array.size if self.array is not None else self.device_array.size)

    def shaped(self, shape: Shape) -> Any:
        """Return an array of another shape in the same memory.

        Args:
            shape: As many elements as the memory has.
        """
        array = self.device_array if self.array is None else self.array
        return array if array.shape == shape else array.reshape(shape)

    def host_array(self) -> NDArray[Any]:
        """Return the array of the host, or a copy of the one on the device."""
        if self.array is not None:
            return self.array
        copied: NDArray[Any] = self.device_array.get()
        return copied

    def write(self, source: NDArray[Any]) -> None:
        """Copy the bytes of an array to the begin of the memory.

        Args:
            source: A C-contiguous array of any element type.

        Raises:
            RuntimeError: There are more bytes than fit.
            ValueError: The memory is read-only.
        """
        target = self.host_array()
        if source.nbytes > target.nbytes:
            raise RuntimeError(
                f"WriteTensorBuffer: source buffer is larger than the tensor buffer: {source.nbytes} bytes, "
                f"{target.nbytes} fit"
            )
        if source.dtype == target.dtype and source.shape == target.shape:  # as in most calls
            target[...] = source
        else:
            _bytes(target)[: source.nbytes] = _bytes(source)
        if self.array is None:
            self.device_array.set(target)

    def read(self, target: NDArray[Any]) -> None:
        """Fill an array with the first bytes of the memory.

        Args:
            target: A C-contiguous array of any element type.

        Raises:
            RuntimeError: The array is longer than the memory.
        """
        source = self.host_array()
        if target.nbytes > source.nbytes:
            raise RuntimeError(
                f"ReadTensorToBuffer: destination buffer is larger than the tensor buffer: {target.nbytes} bytes, "
                f"there are {source.nbytes}"
            )
        _bytes(target)[:] = _bytes(source)[: target.nbytes]


def _bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the same memory, byte by byte."""
    return array.reshape(-1).view(np.uint8)
