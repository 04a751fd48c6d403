"""Floats are stored as the nearest half, except that finite numbers stay finite."""

from __future__ import annotations

import numpy as np
import pyopencl as cl
import pytest

from tflgpu.codegen.render import prelude
from tflgpu.runtime.opencl.devices import choose
from tflgpu.runtime.opencl.program import compile_program, make_kernel
from tflgpu.runtime.opencl.session import open_session
from tflgpu.target import Target

EDGES = [0.0, -0.0, 6e-8, 1e-38, 1.0, 1 / 3, 2049.0, 65503.9, 65504.0, 65519.99, 65520.0, 1e5, 3.4028235e38, np.inf]
FLOATS = np.array([*EDGES, *(-x for x in EDGES), np.nan, 0.1, 3.14159, -777.7], np.float32)


@pytest.mark.parametrize("lanes", [1, 4, 16])
def test_finite_floats_stay_finite_halves(lanes: int, device_name: str) -> None:
    session = open_session(choose(device_name))
    at = "i" if lanes == 1 else f"i * {lanes // 4}"
    text = f"""{prelude(Target(family="cpu", compute_units=1, storage="half"))}
__kernel void store(__global const float *x, __global half *y) {{
  const int i = get_global_id(0);
  store{lanes}_half(load{lanes}_float(x, {at}), y, {at});
}}
"""
    with np.errstate(over="ignore"):
        expected = np.where(np.isfinite(FLOATS), np.clip(FLOATS, -65504, 65504), FLOATS).astype(np.float16)
    given = cl.Buffer(session.context, cl.mem_flags.COPY_HOST_PTR, hostbuf=FLOATS)
    stored, got = cl.Buffer(session.context, 0, expected.nbytes), np.empty_like(expected)
    kernel = make_kernel(compile_program(session.context, text), "store")
    kernel(session.queue, (FLOATS.size // lanes,), None, given, stored)
    cl.enqueue_copy(session.queue, got, stored)
    np.testing.assert_array_equal(got, expected)
    assert (np.signbit(got) == np.signbit(expected))[~np.isnan(expected)].all()
