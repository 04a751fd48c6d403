"""Rows of the operators that multiply by weights."""

from __future__ import annotations

from functools import partial

import numpy as np
from hypothesis import strategies as st

from tests.ops import reference, windows
from tests.ops.case import Net, Row, Tensor, largest
from tests.ops.strategies import ACTIVATION, BOOL, CHANNELS, PADDING, feature_map, shapes, weights, window
from tests.ops.windows import Window

NO_BIAS = np.zeros(1)


def conv_2d(net: Net, grouped: bool = False, runtime: bool = False) -> Tensor:
    x = _grouped_map(net) if grouped else feature_map(net)
    groups = _divisor(net, x.shape[3]) if grouped else 1
    return convolve(net, x, window(net, x.shape, max_dilation=3), groups, runtime)


def conv_2d_1x1(net: Net) -> Tensor:
    x = feature_map(net)
    return convolve(net, x, Window((1, 1)))


def convolve(net: Net, x: Tensor, w: Window, groups: int = 1, runtime: bool = False) -> Tensor:
    inputs = x.shape[3] // groups
    outputs = groups * net.draw(st.integers(1, 8)) if groups > 1 else net.draw(CHANNELS)
    terms = inputs * w.kernel[0] * w.kernel[1]
    filters = weights(net, (outputs, *w.kernel, inputs), terms, runtime)
    bias = _bias(net, outputs, runtime)
    return net.op(
        "CONV_2D",
        [x, filters, bias],
        windows.conv_2d(x.value, filters.value, bias.value, w),
        _window_options(w) | _dilation_options(w),
        activation=net.draw(ACTIVATION),
        version=6 if groups > 1 else 1,
        terms=terms,
        magnitude=largest(x.value) * largest(filters.value),
    )


def depthwise_conv_2d(net: Net, runtime: bool = False) -> Tensor:
    x = feature_map(net)
    w = window(net, x.shape, max_dilation=3)
    multiplier = net.draw(st.sampled_from((1, 1, 2, 3, 4, 8)))
    terms = w.kernel[0] * w.kernel[1]
    filters = weights(net, (1, *w.kernel, x.shape[3] * multiplier), terms, runtime)
    bias = _bias(net, x.shape[3] * multiplier, runtime)
    return net.op(
        "DEPTHWISE_CONV_2D",
        [x, filters, bias],
        windows.depthwise_conv_2d(x.value, filters.value, bias.value, w),
        _window_options(w) | _dilation_options(w) | {"depth_multiplier": multiplier},
        activation=net.draw(ACTIVATION),
        version=1 if w.dilation == (1, 1) else 2,
        terms=terms,
        magnitude=largest(x.value) * largest(filters.value),
    )


def transpose_conv(net: Net, activation: st.SearchStrategy[str] = ACTIVATION, runtime: bool = False) -> Tensor:
    x = feature_map(net)
    kernel = net.draw(st.tuples(st.integers(1, 9), st.integers(1, 9)))
    stride = net.draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    w = Window(kernel, stride, padding=net.draw(PADDING))
    size = _transposed_size(net, x.shape[1], w, 0), _transposed_size(net, x.shape[2], w, 1)
    outputs = net.draw(CHANNELS)
    terms = x.shape[3] * kernel[0] * kernel[1]
    filters = weights(net, (outputs, *kernel, x.shape[3]), terms, runtime)
    bias = _bias(net, outputs, runtime) if net.draw(BOOL) else None
    shape = np.array([x.shape[0], *size, outputs], np.int32)
    fused = net.draw(activation)
    return net.op(
        "TRANSPOSE_CONV",
        [net.constant(shape), filters, x, *([bias] if bias else [])],
        windows.transpose_conv(x.value, filters.value, bias.value if bias else NO_BIAS, w, size),
        _window_options(w),
        activation=fused,
        version=4 if fused != "NONE" else 3 if bias else 1,
        terms=terms,
        magnitude=largest(x.value) * largest(filters.value),
    )


def fully_connected(net: Net) -> Tensor:
    x = net.input(net.normal(net.draw(shapes(min_rank=2, max_rank=4))))
    keep_num_dims = net.draw(BOOL)
    # Without keep_num_dims trailing axes may be summed together, as the first layer after a convolution does.
    flattened = 1 if keep_num_dims else net.draw(st.integers(1, len(x.shape) - 1))
    terms = int(np.prod(x.shape[-flattened:]))
    outputs = net.draw(CHANNELS)
    matrix = weights(net, (outputs, terms), terms) if net.draw(BOOL) else net.input(net.normal((outputs, terms)))
    bias = _bias(net, outputs, net.draw(BOOL)) if net.draw(BOOL) else None
    leave_out = bias is None and net.draw(BOOL)  # instead of an input that is absent
    return net.op(
        "FULLY_CONNECTED",
        [x, matrix] if leave_out else [x, matrix, bias],
        reference.fully_connected(x.value, matrix.value, bias.value if bias else NO_BIAS, keep_num_dims),
        {"keep_num_dims": keep_num_dims},
        activation=net.draw(ACTIVATION),
        version=6 if leave_out else 5 if keep_num_dims else 1,
        terms=terms,
        magnitude=largest(x.value) * largest(matrix.value),
    )


def _bias(net: Net, channels: int, runtime: bool) -> Tensor:
    """A bias, which CONV_2D and DEPTHWISE_CONV_2D have no form without; an input of the model if ``runtime``."""
    return (net.input if runtime else net.constant)(net.normal((channels,)))


def _window_options(w: Window) -> dict[str, object]:
    return {"padding": w.padding, "stride_h": w.stride[0], "stride_w": w.stride[1]}


def _dilation_options(w: Window) -> dict[str, object]:
    return {"dilation_h_factor": w.dilation[0], "dilation_w_factor": w.dilation[1]}


def _grouped_map(net: Net) -> Tensor:
    """A map whose channels fall into groups of 1, of odd sizes, and of whole slices of 4."""
    channels = net.draw(st.sampled_from((6, 4, 8, 9, 12, 16, 24, 32)))
    extent = st.integers(1, 12)
    return net.input(net.normal((net.draw(st.integers(1, 2)), net.draw(extent), net.draw(extent), channels)))


def _divisor(net: Net, channels: int) -> int:
    return net.draw(st.sampled_from([d for d in range(2, channels + 1) if channels % d == 0]))


def _transposed_size(net: Net, size: int, w: Window, axis: int) -> int:
    """One of the output sizes that the window of ``w`` turns into ``size`` positions."""
    stride, kernel = w.stride[axis], w.kernel[axis]
    smallest = (size - 1) * stride + (kernel if w.padding == "VALID" else 1)
    return smallest + net.draw(st.integers(0, stride - 1))


ROWS = (
    Row("conv_2d_1x1", "CONV_2D", conv_2d_1x1),
    Row("conv_2d", "CONV_2D", conv_2d),
    Row("conv_2d_grouped", "CONV_2D", partial(conv_2d, grouped=True)),
    Row("conv_2d_runtime_weights", "CONV_2D", partial(conv_2d, runtime=True)),
    Row("conv_2d_grouped_runtime_weights", "CONV_2D", partial(conv_2d, grouped=True, runtime=True)),
    Row("depthwise_conv_2d", "DEPTHWISE_CONV_2D", depthwise_conv_2d),
    Row("depthwise_conv_2d_runtime_weights", "DEPTHWISE_CONV_2D", partial(depthwise_conv_2d, runtime=True)),
    Row("transpose_conv", "TRANSPOSE_CONV", transpose_conv),
    Row("transpose_conv_runtime_weights", "TRANSPOSE_CONV", partial(transpose_conv, runtime=True)),
    Row("fully_connected", "FULLY_CONNECTED", fully_connected),
)
