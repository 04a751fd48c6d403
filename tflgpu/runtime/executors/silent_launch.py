"""Launches of which nobody wants an event.

pyopencl always asks for one. On an H200 a kernel with an event is known to be over 2 us later, and the next one begins
3 us later: the driver lets the GPU write down when each ended.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache, partial

import pyopencl as cl

from tflgpu.runtime.opencl.clock import Launch
from tflgpu.runtime.opencl.session import Session


def silent_launch(session: Session, launch: Launch) -> Callable[[], object]:
    """What enqueues a launch without an event on a GPU, and with one elsewhere. It raises pyopencl's errors."""
    queue, enqueue = session.queue, _enqueue_function()
    with_event = partial(cl.enqueue_nd_range_kernel, queue, *launch)
    if session.device.type != "gpu" or enqueue is None:
        return with_event
    kernel, size, local_size, offset = launch
    sizes = [(ctypes.c_size_t * len(numbers))(*numbers) for numbers in (offset, size, local_size)]
    handles = [ctypes.c_void_p(each.int_ptr) for each in (queue, kernel)]
    arguments = (*handles, len(size), *sizes, 0, None, None)

    def without_event() -> None:
        if enqueue(*arguments):
            with_event()  # fails as well, and says why

    return without_event


@cache
def _enqueue_function() -> Callable[..., int] | None:
    """clEnqueueNDRangeKernel of the library that pyopencl uses, if it can be found through pyopencl's own."""
    try:
        function = ctypes.CDLL(cl._cl.__file__).clEnqueueNDRangeKernel
    except (AttributeError, OSError):
        return None
    pointer, number = ctypes.c_void_p, ctypes.c_uint
    function.argtypes = [pointer, pointer, number, pointer, pointer, pointer, number, pointer, pointer]
    return function
