"""Rows of Fourier transforms and of what is read of complex numbers."""

from __future__ import annotations

from functools import partial

import numpy as np
from hypothesis import strategies as st

from tests.ops.case import Net, Row, Tensor
from tests.ops.strategies import BOOL, SMALL
from tests.ops.tolerance import Tolerance
from tflgpu.ops.declaration import Array

POINTS = st.sampled_from((8, 1, 2, 3, 4, 5, 7, 16, 20, 33, 64))  # the CPU's transform takes powers of two
PARTS = {"COMPLEX_ABS": np.abs, "REAL": np.real, "IMAG": np.imag}


def transform(net: Net, code: str) -> Tensor:
    """A part of a transform of frames that are longer or shorter than it; the complex numbers may be moved before."""
    height, width = net.draw(st.sampled_from((1, 2, 4))), net.draw(POINTS)
    leading = net.draw(st.lists(SMALL, max_size=2))
    frames = net.input(net.normal((*leading, net.draw(SMALL), max(1, width + net.draw(st.integers(-2, 3))))))
    value: Array = np.fft.rfft2(frames.value, (height, width))
    if height & (height - 1) or width & (width - 1):
        net.litert_differs = "it transforms powers of two only"
    elif width == 1:
        net.litert_differs = "it gives a single number an imaginary part"
    size = float(np.abs(frames.value).sum((-2, -1)).max())
    x = net.op("RFFT2D", [frames, net.integers([height, width])], value, magnitude=size, dtype="complex64")
    if net.draw(BOOL):
        shape = (value.size,)
        x = net.op("RESHAPE", [x, net.integers(shape)], value.reshape(shape), dtype="complex64")
    return net.op(code, [x], PARTS[code](x.value))


SUMS = Tolerance(fp32=3e-6)

ROWS = (
    Row("rfft2d", "RFFT2D", partial(transform, code="REAL"), SUMS),
    *(Row(code.lower(), code, partial(transform, code=code), SUMS) for code in PARTS),
)
