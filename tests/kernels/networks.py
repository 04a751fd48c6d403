"""Convolutions as the tests of kernels write them."""

from __future__ import annotations

from tests.ops import windows
from tests.ops.case import Net, Tensor
from tests.ops.windows import Window


def convolution(net: Net, x: Tensor, out: int, window: Window, activation: str) -> Tensor:
    terms = x.shape[3] * window.kernel[0] * window.kernel[1]
    filters, bias = (
        net.constant(net.normal((out, *window.kernel, x.shape[3]), terms**-0.5)),
        net.constant(net.normal((out,))),
    )
    value = windows.conv_2d(x.value, filters.value, bias.value, window)
    return net.op("CONV_2D", [x, filters, bias], value, options(window), activation=activation, terms=terms)


def depthwise(net: Net, x: Tensor, window: Window, activation: str) -> Tensor:
    filters = net.constant(net.normal((1, *window.kernel, x.shape[3]), 0.3))
    bias = net.constant(net.normal((x.shape[3],)))
    value = windows.depthwise_conv_2d(x.value, filters.value, bias.value, window)
    return net.op("DEPTHWISE_CONV_2D", [x, filters, bias], value, options(window), activation=activation)


def options(w: Window) -> dict[str, object]:
    strides = {"padding": w.padding, "stride_h": w.stride[0], "stride_w": w.stride[1]}
    return strides | {"dilation_h_factor": w.dilation[0], "dilation_w_factor": w.dilation[1]}
