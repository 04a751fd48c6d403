"""Command buffers (``cl_khr_command_buffer``), for which pyopencl has no classes, by way of ctypes.

The signatures of the functions below are the same from version 0.9.0 of the extension to 1.0.0.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint, c_void_p
from typing import Any

import pyopencl as cl

from tflgpu.runtime.opencl.clock import Launch

EXTENSION = "cl_khr_command_buffer"

KNOWN = range(0x9000, 0x400001)  # versions 0.9.0 to 1.0.0, as OpenCL encodes them

SIGNATURES = {
    "clCreateCommandBufferKHR": (c_void_p, c_uint, POINTER(c_void_p), c_void_p, POINTER(c_int)),
    "clCommandNDRangeKernelKHR": (
        *(c_int, c_void_p, c_void_p, c_void_p, c_void_p, c_uint, c_void_p, POINTER(c_size_t), POINTER(c_size_t)),
        *(c_uint, c_void_p, c_void_p, c_void_p),
    ),
    "clFinalizeCommandBufferKHR": (c_int, c_void_p),
    "clEnqueueCommandBufferKHR": (c_int, c_uint, c_void_p, c_void_p, c_uint, c_void_p, c_void_p),
    "clReleaseCommandBufferKHR": (c_int, c_void_p),
}


def version_of(device: cl.Device) -> int | None:
    """The version of the device's extension; None if it has none, or one with signatures that are not known."""
    if EXTENSION not in device.extensions.split():
        return None
    version = next(e.version for e in device.extensions_with_version if e.name == EXTENSION)
    return version if version in KNOWN else None


class CommandBuffer:
    """Launches, recorded in order for one in-order queue. They keep the arguments that the kernels had then."""

    def __init__(self, queue: cl.CommandQueue, launches: Iterable[Launch]) -> None:
        self._call = _Functions(queue.device.platform)
        error = c_int()
        self._handle = self._call("clCreateCommandBufferKHR", 1, (c_void_p * 1)(queue.int_ptr), None, byref(error))
        _check(error.value)
        for kernel, global_size, local_size, offset in launches:
            sizes = (c_size_t * 1)(*offset), (c_size_t * 1)(*global_size), (c_size_t * 1)(*local_size)
            nothing = 0, None, None, None  # an in-order queue needs no points of synchronization
            found = self._call(
                "clCommandNDRangeKernelKHR", self._handle, None, None, kernel.int_ptr, 1, *sizes, *nothing
            )
            _check(found)
        _check(self._call("clFinalizeCommandBufferKHR", self._handle))

    def enqueue(self) -> None:
        """Enqueue all launches on the queue."""
        _check(self._call("clEnqueueCommandBufferKHR", 0, None, self._handle, 0, None, None))

    def release(self) -> None:
        """To be called when the queue is done."""
        _check(self._call("clReleaseCommandBufferKHR", self._handle))


class _Functions:
    """The extension's functions of one platform, as the loader that pyopencl uses finds them."""

    def __init__(self, platform: cl.Platform) -> None:
        # The symbols of a library include those of the libraries that it needs, here the loader's.
        find = ctypes.CDLL(cl._cl.__file__).clGetExtensionFunctionAddressForPlatform
        find.restype, find.argtypes = c_void_p, (c_void_p, c_char_p)
        self._functions = {
            name: ctypes.CFUNCTYPE(*signature)(find(platform.int_ptr, name.encode()))
            for name, signature in SIGNATURES.items()
        }

    def __call__(self, name: str, *arguments: object) -> Any:
        return self._functions[name](*arguments)


def _check(status: int) -> None:
    if status != 0:
        raise RuntimeError(f"OpenCL error {status}")
