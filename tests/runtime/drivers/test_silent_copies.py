"""Copies without an event between a GPU and pinned memory; here on a CPU."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import numpy as np
import pyopencl as cl
import pytest

from tflgpu.runtime import pinned_transfer
from tflgpu.runtime.opencl.devices import choose
from tflgpu.runtime.opencl.session import Session, open_session
from tflgpu.runtime.pinned_transfer import SilentCopies


@pytest.fixture
def session(device_name: str) -> Session:
    return open_session(choose(device_name))


def refuse(*_: object, **__: object) -> None:
    pytest.fail("with an event")


@pytest.mark.parametrize("finds", [True, False], ids=["silent", "with events"])
@pytest.mark.parametrize("writable", [True, False])
def test_bytes_arrive(finds: bool, writable: bool, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the loader's functions are not found."""
    if finds:
        monkeypatch.setattr(cl, "enqueue_copy", refuse)
    else:
        monkeypatch.setattr(pinned_transfer, "loader_function", lambda *_: None)
    copies, buffer = SilentCopies(session.queue), cl.Buffer(session.context, cl.mem_flags.READ_WRITE, 64)
    whole, part, found = np.arange(16, dtype=np.float32), np.full(4, 7, np.float32), np.zeros(16, np.float32)
    part.flags.writeable = writable
    kept = [*copies.write(buffer, whole), *copies.write(buffer, part, 8), *copies.read(found, buffer)]
    session.queue.finish()
    assert len(kept) == 3
    np.testing.assert_array_equal(found, [0, 1, 7, 7, 7, 7, *range(6, 16)])


def test_a_copy_that_fails_raises_the_error_of_pyopencl(session: Session) -> None:
    copies, buffer = SilentCopies(session.queue), cl.Buffer(session.context, cl.mem_flags.READ_WRITE, 64)
    calls: list[Callable[[], object]] = [
        lambda: copies.write(buffer, np.zeros(16, np.float32), 4),
        lambda: copies.read(np.zeros(17, np.float32), buffer),
    ]
    for call in calls:
        with pytest.raises(cl.Error, match="INVALID_VALUE"):
            call()


def test_arrays_may_be_empty(session: Session) -> None:
    """OpenCL before 2.1 has no copy of no bytes."""
    copies, buffer = SilentCopies(session.queue), cl.Buffer(session.context, cl.mem_flags.READ_WRITE, 64)
    copies.write(buffer, np.zeros(0, np.float32))
    copies.read(np.zeros(0, np.float32), buffer)
    session.queue.finish()


def test_what_is_returned_keeps_the_array(session: Session) -> None:
    copies, buffer = SilentCopies(session.queue), cl.Buffer(session.context, cl.mem_flags.READ_WRITE, 64)
    array = np.zeros(16, np.float32)
    alive, kept = weakref.ref(array), copies.write(buffer, array)
    del array
    gc.collect()
    assert alive() is not None
    session.queue.finish()
    del kept
    gc.collect()
    assert alive() is None
