"""A context and an in-order queue on one device, and copies between it and the host."""

from __future__ import annotations

import ctypes
import threading
from dataclasses import dataclass
from functools import cache
from threading import get_ident
from types import TracebackType
from typing import Any, cast

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from tflgpu.errors import DeviceError
from tflgpu.runtime.opencl import process
from tflgpu.runtime.opencl.description import OLDEST_LANGUAGE
from tflgpu.runtime.opencl.devices import Device, devices, root_device, with_handle
from tflgpu.runtime.opencl.process import Helping, inside, starts_threads
from tflgpu.runtime.opencl.quirks import Driver, quirks_of, with_advice

Place = cl.Buffer | NDArray[Any]


def copy(queue: cl.CommandQueue, target: Place, source: Place, **arguments: Any) -> tuple[cl.Event, ...]:
    """Enqueue a copy, unless there are no bytes to copy.

    At least one of both places is on the host, or ``byte_count`` is given.

    Args:
        queue: Of the context of both.
        target: Gets the bytes.
        source: Has the bytes.
        **arguments: Others of pyopencl's ``enqueue_copy``.

    Returns:
        Its event, or nothing.
    """
    sizes = [place.nbytes for place in (target, source) if isinstance(place, np.ndarray)]
    if 0 in (*sizes, arguments.get("byte_count")):
        return ()  # OpenCL before 2.1 has no copy of no bytes
    return (cl.enqueue_copy(queue, target, source, **arguments),)


_INLINE = cast(cl.command_queue_properties, 1 << 31)  # CL_QUEUE_THREAD_LOCAL_EXEC_ENABLE_INTEL, unknown to pyopencl

_kept: dict[cl.Device, cl.Context] = {}


@dataclass(frozen=True)
class Session:
    """Resources of a device that a compiled model holds.

    aside: a second queue for brief runs that wake no thread, if the driver has a way and ``queue`` is not a caller's.
    Either a thread that enqueues a kernel there computes it before the call returns, or kernels there may linger.
    shared: constants of other signatures of the model's file, in the order in which they were made.
    """

    device: Device
    context: cl.Context
    queue: cl.CommandQueue
    aside: cl.CommandQueue | None = None
    shared: tuple[cl.Buffer, ...] = ()


class DeviceFailures:
    """Entered with ``with``: an error of OpenCL there becomes a DeviceError. As cheap as a run needs it.

    Entering raises what :class:`process.Using` does: DeviceError in a process that was forked from one in which OpenCL
    was in use, SystemExit while another thread ends Python.
    """

    def __init__(self, device: Device, doing: str) -> None:
        self._device, self._doing = device, doing

    def __enter__(self) -> None:
        inside.append(get_ident())  # as Using, without a call: a session has used OpenCL
        if process.is_restricted:
            process.check()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        inside.remove(get_ident())
        if isinstance(error, cl.Error):
            raise self.named(error) from error

    def named(self, error: cl.Error) -> DeviceError:
        """Return the DeviceError for an error of OpenCL."""
        device = self._device
        message = f"{device.name} ({device.platform}) failed while {self._doing}: {error}"
        return DeviceError(with_advice(message, Driver.of(device.handle)))


def open_session(device: Device) -> Session:
    """Raise DeviceError if the driver refuses a context, or has too old a language."""
    if device.limits.opencl_c < OLDEST_LANGUAGE:
        has, needs = (".".join(map(str, version)) for version in (device.limits.opencl_c, OLDEST_LANGUAGE))
        raise DeviceError(f"{device.name} ({device.platform}) has OpenCL C {has}; {needs} is needed")
    with DeviceFailures(device, "being opened"):
        context = _context_beside_python(device.handle) if device.type == "gpu" else None
        context = context or cl.Context([device.handle])
        if any(quirk.keeps_context for quirk in quirks_of(Driver.of(device.handle))):
            _kept.setdefault(device.handle, context)
        # The context of a sub-device may belong to the whole device.
        queue = cl.CommandQueue(context, device.handle)
        return Session(device, context, queue, _queue_aside(device, context))


class SessionOpening:
    """A session that is being opened by a thread, while the caller plans what to run on it."""

    def __init__(self, device: Device, session: Session | None = None) -> None:
        """session: one that is open already, if there is one."""
        self._device, self._opened = device, session
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._open, name="tflgpu-session")
        if session is None and starts_threads():
            self._thread.start()
        elif session is None:
            self._open()

    def _open(self) -> None:
        try:
            with Helping():
                self._opened = open_session(self._device)
        except BaseException as error:  # raised where the session is asked for
            self._error = error

    def session(self) -> Session:
        """Wait for the session. Raises what :func:`open_session` does."""
        if self._opened is None:
            if self._thread.is_alive():
                self._thread.join()
            if self._error is not None:
                raise self._error
        assert self._opened is not None
        return self._opened


@cache
def loader_function(name: str, *arguments: type) -> Any:
    """Return a function of the OpenCL loader that pyopencl is linked to, by ``ctypes``.

    Args:
        name: The function in C.
        *arguments: Types of its arguments.

    Returns:
        None if it cannot be found.
    """
    try:
        function = getattr(ctypes.CDLL(cl._cl.__file__), name)
    except (AttributeError, OSError):
        return None
    function.argtypes = arguments
    return function


def _context_beside_python(handle: cl.Device) -> cl.Context | None:
    """Return a context, during whose making other threads run Python; None if that cannot be done.

    ``cl.Context`` holds the interpreter's lock, and a GPU's driver may take more than a second.
    """
    create = loader_function("clCreateContext", ctypes.c_void_p, ctypes.c_uint, *[ctypes.c_void_p] * 4)
    if create is None:
        return None
    create.restype = ctypes.c_void_p
    made = create(None, 1, ctypes.byref(ctypes.c_void_p(handle.int_ptr)), None, None, None)
    return cl.Context.from_int_ptr(made, False) if made else None


def _queue_aside(device: Device, context: cl.Context) -> cl.CommandQueue | None:
    if "cl_intel_exec_by_local_thread" in device.handle.extensions.split():
        return cl.CommandQueue(context, device.handle, _INLINE)
    lingers = any(quirk.may_linger for quirk in quirks_of(Driver.of(device.handle)))
    return cl.CommandQueue(context, device.handle) if lingers else None


def session_on(queue: cl.CommandQueue) -> Session:
    """Return a session on a caller's queue.

    Args:
        queue: Of one of :func:`tflgpu.devices`, or of a sub-device of one.

    Raises:
        TypeError: It is no queue.
        ValueError: It may run out of order, or its context has several devices.
    """
    if not isinstance(queue, cl.CommandQueue):
        raise TypeError(f"queue is of type {type(queue).__name__}; a pyopencl.CommandQueue was expected")
    if queue.properties & cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE:
        raise ValueError("the queue may run commands out of order; a model needs one that does not")
    handle = queue.device
    device = next((d for d in devices() if d.handle == root_device(handle)), None)
    if device is None or [root_device(each) for each in queue.context.devices] != [device.handle]:
        raise ValueError("the queue's context must have a single device, as `tflgpu devices` lists it")
    return Session(device if device.handle == handle else with_handle(device, handle), queue.context, queue)


def profiling_queue(session: Session) -> cl.CommandQueue:
    """One more queue of the session, which times what it runs."""
    properties = cl.command_queue_properties.PROFILING_ENABLE
    return cl.CommandQueue(session.context, session.device.handle, properties)
