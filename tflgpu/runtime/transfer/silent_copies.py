"""Copies between a GPU and the host without events, as for launches: see launch_queue.py."""

from __future__ import annotations

import ctypes
from typing import Any

import pyopencl as cl

from tflgpu.artifact.executable import Array
from tflgpu.runtime.opencl.copies import copy
from tflgpu.runtime.opencl.session import loader_function

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
