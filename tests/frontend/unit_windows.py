"""Convolutions by windows of ones."""

from __future__ import annotations

import numpy as np

from tests.support.models import Builder

CODES = ("CONV_2D", "grouped CONV_2D", "DEPTHWISE_CONV_2D")


def convolution(code: str, dilation: int = 1, stride: int = 1) -> bytes:
    """A window of 3 by 3 ones over an image of 5 by 5 pixels."""
    builder = Builder()
    shape = {"CONV_2D": (8, 3, 3, 8), "grouped CONV_2D": (8, 3, 3, 4), "DEPTHWISE_CONV_2D": (1, 3, 3, 8)}[code]
    out = -(-5 // stride)
    x = builder.input((1, 5, 5, 8))
    options = {"padding": "SAME", "dilation_h_factor": dilation, "dilation_w_factor": dilation}
    inputs = [x, builder.constant(np.ones(shape, np.float32)), builder.constant(np.zeros(8, np.float32))]
    y = builder.add(code.split()[-1], inputs, (1, out, out, 8), **options, stride_h=stride, stride_w=stride)
    return builder.finish([y])
