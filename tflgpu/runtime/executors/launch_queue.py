"""Launches one after another, with events only where somebody wants them.

pyopencl always asks for one. On an H200 a kernel with an event is known to be over 2 us later, and the next one begins
3 us later: the driver lets the GPU write down when each ended.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import partial

import pyopencl as cl

from tflgpu.runtime.opencl.clock import Launch
from tflgpu.runtime.opencl.session import Session, loader_function

_POINTER, _NUMBER = ctypes.c_void_p, ctypes.c_uint


class LaunchQueue:
    """Launches on a session's in-order queue."""

    def __init__(self, session: Session, launches: Sequence[Launch]) -> None:
        self._launches = launches
        self._queue = session.queue
        self._silent = [silent_launch(session, launch) for launch in launches]

    def start(self, ready: Sequence[cl.Event] = ()) -> cl.Event | None:
        """Enqueue all launches.

        Args:
            ready: Events that the first launch waits for.

        Returns:
            An event of the last launch; None if there is none.
        """
        last, before, final = None, ready or None, len(self._launches) - 1
        for number, launch in enumerate(self._launches):
            if before or number == final:
                last = cl.enqueue_nd_range_kernel(self._queue, *launch, wait_for=before)
                before = None
            else:
                self._silent[number]()
        return last

    def start_silently(self) -> None:
        """Enqueue the launches that have no event."""
        for launch in self._silent:
            launch()


def silent_launch(session: Session, launch: Launch) -> Callable[[], object]:
    """Return what enqueues a launch without an event on a GPU, and with one elsewhere. It raises pyopencl's errors."""
    queue = session.queue
    function = loader_function("clEnqueueNDRangeKernel")
    with_event = partial(cl.enqueue_nd_range_kernel, queue, *launch)
    if session.device.type != "gpu" or function is None:
        return with_event
    kernel, size, local_size, offset = launch
    sizes = [(ctypes.c_size_t * len(numbers))(*numbers) for numbers in (offset, size, local_size)]
    handles, nothing = [_POINTER(each.int_ptr) for each in (queue, kernel)], _POINTER()
    # All are C's types already: to convert nine arguments takes longer than to call.
    enqueue = partial(function, *handles, _NUMBER(len(size)), *sizes, _NUMBER(0), nothing, nothing)

    def without_event() -> None:
        if enqueue():
            with_event()  # fails as well, and says why

    return without_event
