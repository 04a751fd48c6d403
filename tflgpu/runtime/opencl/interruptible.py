"""Calls of a driver that take long, and how Ctrl-C ends the wait for them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from tflgpu.runtime.opencl.process import starts_threads

T = TypeVar("T")

NOTE = "The device's compiler cannot be stopped: it goes on in the background, and the process ends after it."


def interruptible(call: Callable[[], T]) -> T:
    """What ``call`` returns or raises.

    Python answers signals in the main thread and between two of its own instructions. So the main thread waits here for
    another one, which makes the call; Ctrl-C raises KeyboardInterrupt at once.
    """
    if threading.current_thread() is not threading.main_thread() or not starts_threads():
        return call()
    from concurrent.futures import ThreadPoolExecutor  # a warm start does without

    pool = ThreadPoolExecutor(1, thread_name_prefix="tflgpu-compiler")
    try:
        answer = pool.submit(call)
        pool.shutdown(wait=False)
        return answer.result()
    except KeyboardInterrupt as interrupt:
        interrupt.add_note(NOTE)
        raise
