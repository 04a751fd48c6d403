"""Arrays of other libraries in the host's memory: what has ``__dlpack__``, ``__array__`` or the buffer protocol."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any, Protocol, TypeGuard

import numpy as np
from numpy.typing import NDArray


class HasDLPack(Protocol):
    """Protocol of an object that exports its memory by DLPack, such as a tensor of PyTorch."""

    def __dlpack__(self, *, stream: Any = None) -> Any: ...

    def __dlpack_device__(self) -> Any: ...


class HasArray(Protocol):
    """Protocol of an object that numpy makes an array of, such as a tensor of TensorFlow."""

    def __array__(self) -> Any: ...


PROTOCOLS = ("__dlpack__", "__array__", "__array_interface__")

# Types that have no array, or that are several.
NO_ARRAY = (list, tuple, Mapping, Set, str, bytes)

# The host's memory among the types of devices of DLPack: of the CPU, pinned by CUDA and by ROCm, and managed by CUDA.
ON_HOST = (1, 3, 11, 13)
DEVICES = {2: "a CUDA GPU", 4: "an OpenCL device", 7: "a Vulkan device", 8: "a Metal GPU", 10: "a ROCm GPU"}
DEVICES |= {14: "a oneAPI device"}

# Errors that libraries raise for memory, element types and gradients that they do not export.
REFUSALS = (AttributeError, BufferError, NotImplementedError, RuntimeError, TypeError, ValueError)


def is_array(value: object) -> TypeGuard[HasDLPack]:
    """Whether a value is one array, not a sequence of several or a mapping.

    Args:
        value: A caller's value; it may be anything.
    """
    if isinstance(value, np.ndarray):
        return True
    if isinstance(value, NO_ARRAY):
        return False
    return any(hasattr(type(value), protocol) for protocol in PROTOCOLS) or _is_buffer(value)


def _is_buffer(value: Any) -> bool:
    try:
        memoryview(value).release()
    except TypeError:
        return False
    return True


def host_array(what: str, given: Any) -> NDArray[Any]:
    """Return an array of the host with the elements of another one, in the same memory where that is possible.

    Args:
        what: The array's name, for messages.
        given: An array of numpy or of another library.

    Raises:
        ValueError: It is in the memory of another device, or is no array.
    """
    if isinstance(given, np.ndarray):
        return given
    if hasattr(type(given), "__dlpack__"):
        _require_host(what, given)
        try:
            return np.from_dlpack(given)
        except REFUSALS:  # such as bool for an old numpy; perhaps it has another protocol
            pass
    try:
        return np.asarray(given)
    except REFUSALS as error:
        raise ValueError(f"{what} is no array: {error}") from error


def _require_host(what: str, given: HasDLPack) -> None:
    device_type = getattr(given, "__dlpack_device__", lambda: (1, 0))()[0]
    if int(device_type) not in ON_HOST:
        place = DEVICES.get(int(device_type), f"a device of DLPack's type {int(device_type)}")
        raise ValueError(
            f"{what} is in the memory of {place}; copy it to the host, or give a pyopencl array or buffer of "
            "`CompiledModel.queue`"
        )


def writable_array(what: str, given: Any) -> NDArray[Any]:
    """Return a caller's array of the host as one of numpy in the same memory, to be written.

    Args:
        what: The array's name, for messages.
        given: An array of numpy or of another library.

    Raises:
        TypeError: It is no array.
        ValueError: Its memory cannot be written from here.
    """
    if not is_array(given):
        raise TypeError(f"{what} is a {type(given).__name__}; an array was expected: of pyopencl, numpy or PyTorch")
    view = host_array(what, given)
    if not isinstance(given, np.ndarray):
        if not hasattr(type(given), "__dlpack__") and not _is_buffer(given):
            raise ValueError(f"{what} is a {type(given).__name__}, which may give its elements as a copy")
        if not view.flags.writeable:
            view = _by_array(given, view)
    if not view.flags.writeable:
        raise ValueError(f"{what} is a {type(given).__name__} whose memory is read-only")
    return view


def _by_array(given: Any, view: NDArray[Any]) -> NDArray[Any]:
    """Return what ``__array__`` gives, if it is the memory of ``view``: numpy takes that of DLPack to be read-only."""
    try:
        other = np.asarray(given)
    except REFUSALS:
        return view
    same = other.__array_interface__["data"][0] == view.__array_interface__["data"][0]
    return other if same and other.strides == view.strides else view
