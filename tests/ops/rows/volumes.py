"""Rows of convolutions over frames, rows and columns."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.ops.case import Net, Row, Tensor, largest
from tests.ops.strategies import BOOL, CLAMP, PADDING

Array = NDArray[np.float64]
SIZES = st.tuples(*[st.integers(3, 7)] * 3)
KERNEL = st.tuples(*[st.integers(1, 3)] * 3)
CHANNELS = st.sampled_from((3, 1, 4, 9))
AXES = "dhw"


def _before(size: int, kernel: int, stride: int, dilation: int, padding: str) -> tuple[int, int]:
    """Places of a window along an axis, and the zeros before its first element."""
    reach = (kernel - 1) * dilation + 1
    if padding == "VALID":
        return (size - reach) // stride + 1, 0
    places = -(-size // stride)
    return places, max(0, (places - 1) * stride + reach - size) // 2


def _options(padding: str, stride: tuple[int, ...], dilation: tuple[int, ...]) -> dict[str, object]:
    strides = {f"stride_{axis}": s for axis, s in zip(AXES, stride, strict=True)}
    return {"padding": padding, **strides, **{f"dilation_{a}_factor": d for a, d in zip(AXES, dilation, strict=True)}}


def conv_3d(net: Net) -> Tensor:
    size, kernel, padding = net.draw(SIZES), net.draw(KERNEL), net.draw(PADDING)
    stride = net.draw(st.tuples(*[st.integers(1, 2)] * 3))
    dilation = tuple(
        net.draw(st.integers(1, 2)) if k == 1 or n > 2 * k else 1 for n, k in zip(size, kernel, strict=True)
    )
    x = net.input(net.normal((net.draw(st.integers(1, 2)), *size, net.draw(CHANNELS))))
    outputs = net.draw(CHANNELS)
    filters = net.constant(net.normal((*kernel, x.shape[-1], outputs), 0.3))
    bias = net.constant(net.normal((outputs,))) if net.draw(BOOL) else None
    axes = zip(size, kernel, stride, dilation, strict=True)
    places = [_before(n, k, s, d, padding) for n, k, s, d in axes]
    canvas = np.pad(x.value, ((0, 0), *((before, 9) for _, before in places), (0, 0)))
    value = np.zeros((x.shape[0], *(count for count, _ in places), outputs))
    for tap in itertools.product(*map(range, kernel)):
        slices = (
            slice(t * d, t * d + (count - 1) * s + 1, s)
            for t, d, s, (count, _) in zip(tap, dilation, stride, places, strict=True)
        )
        value += canvas[(slice(None), *slices)] @ filters.value[tap]
    value = value if bias is None else value + bias.value
    inputs = [x, filters, *([bias] if bias else [])]
    terms = int(np.prod(kernel)) * x.shape[-1]
    magnitude = largest(x.value) * largest(filters.value)
    options = _options(padding, stride, dilation)
    return net.op("CONV_3D", inputs, value, options, activation=net.draw(CLAMP), terms=terms, magnitude=magnitude)


def conv_3d_transpose(net: Net) -> Tensor:
    size, kernel, padding = net.draw(SIZES), net.draw(KERNEL), net.draw(PADDING)
    stride = net.draw(st.tuples(*[st.integers(1, 2)] * 3))
    places = [_before(n, k, s, 1, padding) for n, k, s in zip(size, kernel, stride, strict=True)]
    x = net.input(net.normal((net.draw(st.integers(1, 2)), *(count for count, _ in places), net.draw(CHANNELS))))
    outputs = net.draw(CHANNELS)
    filters = net.constant(net.normal((*kernel, outputs, x.shape[-1]), 0.3))
    canvas = np.zeros((x.shape[0], *(n + 12 for n in size), outputs))
    for tap in itertools.product(*map(range, kernel)):
        slices = (slice(t, t + (count - 1) * s + 1, s) for t, s, (count, _) in zip(tap, stride, places, strict=True))
        canvas[(slice(None), *slices)] += x.value @ filters.value[tap].T
    inside = (slice(before, before + n) for n, (_, before) in zip(size, places, strict=True))
    value = canvas[(slice(None), *inside)]
    terms = int(np.prod(kernel)) * x.shape[-1]
    magnitude = largest(x.value) * largest(filters.value)
    shape = net.integers(value.shape)
    options = _options(padding, stride, (1, 1, 1))
    return net.op("CONV_3D_TRANSPOSE", [shape, filters, x], value, options, terms=terms, magnitude=magnitude)


ROWS = (
    Row("conv_3d", "CONV_3D", conv_3d),
    Row("conv_3d_transpose", "CONV_3D_TRANSPOSE", conv_3d_transpose),
)
