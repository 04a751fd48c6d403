"""Sessions that open in a thread, and contexts that are made without the interpreter's lock."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyopencl as cl
import pytest

import tflgpu
from tests.safety.models import scaled
from tflgpu.errors import DeviceError
from tflgpu.runtime.opencl import session
from tflgpu.runtime.opencl.devices import choose
from tflgpu.runtime.opencl.program import compile_program, make_kernel
from tflgpu.runtime.opencl.session import SessionOpening, open_session


def test_a_context_beside_python_is_one_of_the_device(device_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    device = replace(choose(device_name), type="gpu")
    opened = open_session(device)
    assert opened.context.devices == [device.handle]
    kernel = make_kernel(compile_program(opened.context, "__kernel void f(__global int *x) { x[0] = 7; }"), "f")
    buffer, found = cl.Buffer(opened.context, cl.mem_flags.READ_WRITE, 4), np.zeros(1, np.int32)
    kernel.set_arg(0, buffer)
    cl.enqueue_nd_range_kernel(opened.queue, kernel, (1,), None)
    cl.enqueue_copy(opened.queue, found, buffer)
    assert found == 7
    monkeypatch.setattr(session.ctypes, "CDLL", lambda _: object())
    assert open_session(device).context.devices == [device.handle], "where the loader has no such name"


def test_a_driver_that_refuses_a_context_is_heard_of_where_that_is_needed(
    device_name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(_: object) -> None:
        raise DeviceError("no context today")

    monkeypatch.setattr(session, "open_session", refuse)
    opening = SessionOpening(choose(device_name))
    for _ in range(2):
        with pytest.raises(DeviceError, match="no context today"):
            opening.session()
    with pytest.raises(DeviceError, match="no context today"):
        tflgpu.compile(scaled(2.0), tflgpu.Options(device=device_name, cache_files=tflgpu.CacheFiles(path=tmp_path)))
