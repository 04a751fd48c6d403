"""Drivers do not survive a fork: their threads are missing in the child, and PoCL, for one, waits for them for ever.

So a process that was forked from one in which OpenCL was in use may not use it. One that was forked before may.
"""

from __future__ import annotations

import os

from tflgpu.errors import DeviceError

_in_use = False

_is_orphan = False  # forked from a process in which OpenCL was in use


def use_opencl() -> None:
    """To be called before OpenCL is used. Raises DeviceError if it was in use when this process was forked."""
    global _in_use
    if _is_orphan:
        raise DeviceError(
            "this process was forked from one that had used OpenCL, whose drivers do not survive that; start processes "
            'by multiprocessing\'s method "spawn" or "forkserver", or use tflgpu first in the child'
        )
    _in_use = True


def _forked() -> None:
    global _is_orphan
    _is_orphan = _in_use


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_forked)
