"""A context and an in-order queue on one device."""

from __future__ import annotations

from dataclasses import dataclass

import pyopencl as cl

from tflgpu.errors import DeviceError
from tflgpu.runtime.devices import Device


@dataclass(frozen=True)
class Session:
    """What a compiled model holds of a device."""

    device: Device
    context: cl.Context
    queue: cl.CommandQueue


def open_session(device: Device) -> Session:
    """Raises DeviceError if the driver refuses a context."""
    try:
        context = cl.Context([device.handle])
        return Session(device, context, cl.CommandQueue(context))
    except cl.Error as error:
        raise DeviceError(f"{device.name} ({device.platform}) could not be opened: {error}") from error


def profiling_queue(session: Session) -> cl.CommandQueue:
    """One more queue of the session, which times what it runs."""
    return cl.CommandQueue(session.context, properties=cl.command_queue_properties.PROFILING_ENABLE)
