"""Buffers of an executable on a device."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyopencl as cl

from tflgpu.artifact.executable import DeviceBuffer
from tflgpu.errors import DeviceError
from tflgpu.runtime.opencl.session import Session


def allocated(
    wanted: DeviceBuffer, session: Session, new_buffer: Callable[[int], cl.Buffer], what: str = "activations"
) -> cl.Buffer:
    """Return a buffer of constants, or of zeros, because nothing writes the lanes past the last channel of an input.

    A buffer that other executables share is there already.

    Args:
        wanted: Its size, and its content if it has constants.
        session: The device.
        new_buffer: Makes a buffer of a number of bytes.
        what: Its use, for messages.

    Raises:
        DeviceError: Memory runs out, or the device has no buffers of this size.
    """
    if wanted.shared is not None:
        return _shared(wanted, wanted.shared, session)
    flags, device = cl.mem_flags, session.device
    what = what if wanted.data is None else "weights"
    if wanted.bytes > device.limits.allocation_bytes:
        raise DeviceError(
            f"{device.name} has no buffers of more than {device.limits.allocation_bytes} bytes; {what} need one of "
            f"{wanted.bytes}"
        )
    try:
        if wanted.data is not None:
            return cl.Buffer(session.context, flags.READ_ONLY | flags.COPY_HOST_PTR, hostbuf=wanted.data)
        buffer = new_buffer(wanted.bytes)
        cl.enqueue_fill(session.queue, buffer, np.zeros(1, np.uint8), wanted.bytes)
    except cl.Error as error:
        raise DeviceError(f"{device.name} has no {wanted.bytes} bytes left for {what}: {error}") from error
    return buffer


def _shared(wanted: DeviceBuffer, number: int, session: Session) -> cl.Buffer:
    """Raise DeviceError if there is no such buffer: a file of the cache may say anything."""
    shared = session.shared[number : number + 1] if number >= 0 else ()
    if not shared or shared[0].size < wanted.bytes:
        raise DeviceError(f"shared weights of {wanted.bytes} bytes are not on the device")
    return shared[0]
