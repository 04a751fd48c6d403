"""LiteRT's ``ai_edge_litert.tensor_buffer``: memory of a tensor, on the host or on the device."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tflgpu.graph.layout import Shape
from tflgpu.runtime.device_memory import is_device_array

__all__ = ["TensorBuffer"]

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


# The element types that LiteRT reads and writes, by numpy's names; the last three are those of the package ml_dtypes.
READABLE = frozenset(
    ("bool", "int8", "uint8", "int32", "float16", "float32", "bfloat16", "float8_e4m3fn", "float8_e5m2")
)

DLPACK_HOST, DLPACK_OPENCL = (1, 0), (4, 0)


class TensorBuffer:
    """Memory of one tensor, with the methods of ``ai_edge_litert.tensor_buffer.TensorBuffer``, and its errors.

    A :class:`tflgpu.compiled_model.CompiledModel` makes buffers for its tensors. ``numpy.asarray(buffer)`` and
    ``from_dlpack`` of any library give an array in the same memory, if it is the host's.

    Args:
        capsule: What another buffer has as ``capsule``.
        environment: Kept as long as the buffer.
    """

    def __init__(self, capsule: Any, environment: object = None) -> None:
        self._capsule, self._environment = capsule, environment

    @classmethod
    def create_from_host_memory(cls, data_array: NDArray[Any]) -> TensorBuffer:
        """Make a buffer in the memory of an array: a model reads what the program writes there, and the other way.

        Args:
            data_array: C-contiguous. Unlike in LiteRT, its address needs no alignment.

        Returns:
            A buffer of one axis for LiteRT; any tensor with as many elements of this type can be in it.

        Raises:
            ValueError: The argument is no array of numpy, is not C-contiguous, or has elements of another type than
                LiteRT's.
        """
        array = _checked(data_array)
        if not array.flags.c_contiguous:
            raise ValueError("data_array must be C-contiguous: a model reads and writes its memory")
        return cls(Memory.on_host(array, shape=(array.size,)))

    @classmethod
    def create_from_device_array(cls, array: Any) -> TensorBuffer:
        """Make a buffer in the memory of an array on the device, which a model reads and writes without a copy.

        LiteRT has no such method.

        Args:
            array: A ``pyopencl.array.Array`` of the model's context, C-contiguous.

        Returns:
            A buffer of the array's shape.

        Raises:
            TypeError: The argument is no array of pyopencl.
        """
        if not is_device_array(array) or not hasattr(array, "dtype"):
            raise TypeError(f"an array of pyopencl was expected, not {type(array).__name__}")
        return cls(Memory.on_device(array))

    def write(self, data_array: NDArray[Any]) -> None:
        """Copy the bytes of an array to the begin of the buffer, whatever its shape and the buffer's element type are.

        Args:
            data_array: No longer than the buffer.

        Raises:
            ValueError: The argument is no array of numpy, has elements of a type that neither LiteRT writes nor the
                buffer has, or the memory is read-only.
            RuntimeError: The array is longer than the buffer, or the buffer was destroyed.
        """
        array = _checked(data_array, own=self._capsule)
        self._memory("WriteTensorBuffer").write(np.ascontiguousarray(array))

    def read(self, num_elements: int, output_dtype: DTypeLike) -> NDArray[Any]:
        """Copy the first bytes of the buffer into a new array.

        Args:
            num_elements: Of the array; or its shape.
            output_dtype: Of the array. The bytes are taken as they are, whatever the buffer's element type is.

        Returns:
            The array.

        Raises:
            ValueError: The element type is neither one that LiteRT reads nor the buffer's.
            RuntimeError: The buffer has fewer bytes, or was destroyed.
        """
        result = np.empty(num_elements, _element_type(output_dtype, own=self._capsule))
        self._memory("ReadTensorToBuffer").read(result)
        return result

    def get_tensor_details(self) -> dict[str, Any]:
        """Return what the buffer holds.

        Returns:
            ``dtype``, by its name, and ``shape``.

        Raises:
            RuntimeError: The buffer was destroyed.
        """
        memory = self._memory("GetTensorDetails")
        return {"dtype": memory.dtype_name, "shape": list(memory.shape)}

    def destroy(self) -> None:
        """Release the memory; reading and writing afterwards is an error, destroying again is not."""
        self._capsule = self._environment = None

    @property
    def capsule(self) -> Any:
        """Contents of the buffer for a model. Raises ValueError if the buffer was destroyed."""
        if self._capsule is None:
            raise ValueError("TensorBuffer has been destroyed")
        return self._capsule

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        memory = self._memory("__array__")
        if memory.array is None and copy is False:
            raise ValueError("this buffer is on the device: an array of the host is a copy of it")
        array = memory.host_array()
        if dtype is not None and array.dtype != dtype:
            return array.astype(dtype)
        return array.copy() if copy and memory.array is not None else array

    def __dlpack__(self, **asked: Any) -> Any:
        memory = self._memory("__dlpack__")
        if memory.array is None:
            raise BufferError("this buffer is on an OpenCL device, whose memory pyopencl does not export; use read")
        return memory.array.__dlpack__(**{name: value for name, value in asked.items() if value is not None})

    def __dlpack_device__(self) -> tuple[int, int]:
        return DLPACK_OPENCL if self._memory("__dlpack_device__").array is None else DLPACK_HOST

    def __repr__(self) -> str:
        memory = self._capsule
        if not isinstance(memory, Memory):
            return "<TensorBuffer, destroyed>"
        place = "device" if memory.array is None else "host"
        return f"<TensorBuffer {memory.dtype_name} {list(memory.shape)} on the {place}>"

    def _memory(self, method: str) -> Memory:
        if not isinstance(self._capsule, Memory):
            raise RuntimeError(f"{method}: invalid capsule; the buffer was destroyed, or is of another library")
        return self._capsule


def _checked(given: Any, own: Any = None) -> NDArray[Any]:
    if not isinstance(given, np.ndarray):
        raise ValueError("data_array must be a NumPy array")
    _element_type(given.dtype, own)
    return given


def _element_type(given: Any, own: Any = None) -> np.dtype[Any]:
    """Return a type that LiteRT reads and writes; or the buffer's, if it is another one. Raises ValueError."""
    dtype: np.dtype[Any] | None = None
    if given is not None:
        with suppress(TypeError):
            dtype = np.dtype(given)
    if dtype is None or not dtype.isnative or not _is_named(dtype, own):
        raise ValueError(f"Unsupported dtype: {given}")
    return dtype


def _is_named(dtype: np.dtype[Any], own: Any) -> bool:
    name = name_of(dtype)
    return name in READABLE or (isinstance(own, Memory) and name == own.dtype_name)
