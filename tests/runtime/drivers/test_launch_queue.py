"""Launches without an event, as GPUs get them; here on a CPU that is called a GPU."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyopencl as cl
import pytest

from tflgpu.runtime.executors.launch_executor import silent_launch
from tflgpu.runtime.opencl.devices import choose
from tflgpu.runtime.opencl.program import compile_program, make_kernel
from tflgpu.runtime.opencl.session import Session, open_session

SOURCE = """
__kernel void number(__global uint *x) {
  x[get_global_id(0)] = 100 * get_group_id(0) + get_global_id(0);
}
"""


@pytest.fixture
def session(device_name: str) -> Session:
    session = open_session(choose(device_name))
    return replace(session, device=replace(session.device, type="gpu"))


def test_a_silent_launch_computes_what_one_with_an_event_does(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel, results = make_kernel(compile_program(session.context, SOURCE), "number"), []
    for launch in (silent_launch(session, (kernel, (12,), (4,), (0,))), cl.enqueue_nd_range_kernel):
        buffer = cl.Buffer(session.context, cl.mem_flags.READ_WRITE, 48)
        kernel.set_arg(0, buffer)
        with monkeypatch.context() as patch:
            if launch is cl.enqueue_nd_range_kernel:
                launch(session.queue, kernel, (12,), (4,))
            else:
                patch.setattr(cl, "enqueue_nd_range_kernel", lambda *_: pytest.fail("with an event"))
                launch()
        results.append(np.empty(12, np.uint32))
        cl.enqueue_copy(session.queue, results[-1], buffer)
    np.testing.assert_array_equal(*results)


def test_a_silent_launch_that_fails_raises_the_error_of_pyopencl(session: Session) -> None:
    kernel = make_kernel(compile_program(session.context, SOURCE), "number")
    with pytest.raises(cl.Error, match="INVALID_KERNEL_ARGS"):
        silent_launch(session, (kernel, (12,), (4,), (0,)))()
