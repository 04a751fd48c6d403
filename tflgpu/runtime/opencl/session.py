"""A context and an in-order queue on one device."""

from __future__ import annotations

from dataclasses import dataclass

import pyopencl as cl

from tflgpu.errors import DeviceError
from tflgpu.runtime.opencl.devices import Device, devices
from tflgpu.runtime.opencl.quirks import Driver, with_advice


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
        message = f"{device.name} ({device.platform}) could not be opened: {error}"
        raise DeviceError(with_advice(message, Driver.of(device.handle))) from error


def session_on(queue: cl.CommandQueue) -> Session:
    """A session on a caller's queue.

    Raises ValueError if it may run out of order, or is not on one of :func:`tflgpu.devices` alone.
    """
    if queue.properties & cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE:
        raise ValueError("the queue may run commands out of order; a model needs one that does not")
    device = next((d for d in devices() if d.handle == queue.device), None)
    if device is None or queue.context.devices != [device.handle]:
        raise ValueError("the queue's context has to be one of a single device, as `tflgpu devices` lists it")
    return Session(device, queue.context, queue)


def profiling_queue(session: Session) -> cl.CommandQueue:
    """One more queue of the session, which times what it runs."""
    return cl.CommandQueue(session.context, properties=cl.command_queue_properties.PROFILING_ENABLE)
