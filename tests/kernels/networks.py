"""Convolutions as the tests of kernels write them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.ops import reference, windows
from tests.ops.case import Net, Tensor
from tests.ops.windows import Window


def convolution(net: Net, x: Tensor, out: int, window: Window, activation: str, groups: int = 1) -> Tensor:
    depth = x.shape[3] // groups
    terms = depth * window.kernel[0] * window.kernel[1]
    filters, bias = (
        net.constant(net.normal((out, *window.kernel, depth), terms**-0.5)),
        net.constant(net.normal((out,))),
    )
    value = windows.conv_2d(x.value, filters.value, bias.value, window)
    return net.op("CONV_2D", [x, filters, bias], value, options(window), activation=activation, terms=terms)


def transpose_convolution(net: Net, x: Tensor, out: int, window: Window, size: tuple[int, int]) -> Tensor:
    """``size``: height and width of the result."""
    filters = net.constant(net.normal((out, *window.kernel, x.shape[3]), x.shape[3] ** -0.5))
    value = windows.transpose_conv(x.value, filters.value, np.zeros(1), window, size)
    strides = {"padding": window.padding, "stride_h": window.stride[0], "stride_w": window.stride[1]}
    return net.op("TRANSPOSE_CONV", [net.integers([x.shape[0], *size, out]), filters, x], value, strides)


def depthwise(net: Net, x: Tensor, window: Window, activation: str) -> Tensor:
    filters = net.constant(net.normal((1, *window.kernel, x.shape[3]), 0.3))
    bias = net.constant(net.normal((x.shape[3],)))
    value = windows.depthwise_conv_2d(x.value, filters.value, bias.value, window)
    return net.op("DEPTHWISE_CONV_2D", [x, filters, bias], value, options(window), activation=activation)


def gates_of(net: Net, x: Tensor, hidden: int) -> Tensor:
    """The gates of an image's channels, by a squeeze-and-excitation."""
    mean = net.op("MEAN", [x, net.integers([1, 2])], x.value.mean((1, 2), keepdims=True), {"keep_dims": True})
    y = convolution(net, mean, hidden, Window((1, 1)), "RELU")
    y = convolution(net, y, x.shape[3], Window((1, 1)), "NONE")
    return net.op("LOGISTIC", [y], reference.logistic(y.value))


def joined_convolution(net: Net, shape: tuple[int, ...], out: int, window: Window) -> None:
    """A convolution of an image that is stored, which a residual joins. What reads the sum reads it from memory."""
    x = net.input(net.normal(shape))
    x = net.op("ABS", [x], abs(x.value))
    y = convolution(net, x, out, window, "RELU")
    z = net.input(net.normal(y.shape))
    z = net.op("ABS", [z], abs(z.value))
    total = net.op("ADD", [y, z], y.value + z.value, activation="NONE")
    for joined in (total, z):
        net.output(depthwise(net, joined, Window((1, 1)), "NONE"))


def options(w: Window) -> dict[str, object]:
    strides = {"padding": w.padding, "stride_h": w.stride[0], "stride_w": w.stride[1]}
    return strides | {"dilation_h_factor": w.dilation[0], "dilation_w_factor": w.dilation[1]}


EPSILON = 1e-3


def binary(net: Net, code: str, x: Tensor, y: Tensor) -> Tensor:
    functions = {"ADD": np.add, "SUB": np.subtract, "MUL": np.multiply, "DIV": np.divide}
    value = functions[code](x.value, y.value) if code in functions else np.square(x.value - y.value)
    return net.op(code, [x, y], value, activation=None if code == "SQUARED_DIFFERENCE" else "NONE")


def number(net: Net, value: float) -> Tensor:
    return net.constant(np.array(value, np.float32))


def channel_mean(net: Net, x: Tensor) -> Tensor:
    axes, options = net.integers([len(x.shape) - 1]), {"keep_dims": True}
    return net.op("MEAN", [x, axes], x.value.mean(-1, keepdims=True), options, terms=x.shape[-1])


def _root(net: Net, code: str, variance: Tensor) -> Tensor:
    shifted = binary(net, "ADD", variance, number(net, EPSILON))
    return net.op(code, [shifted], np.sqrt(shifted.value) if code == "SQRT" else 1 / np.sqrt(shifted.value))


def layer_norm_of_batch_norms(net: Net, x: Tensor) -> Tensor:
    """A layer norm as TensorFlow writes it: ``x * scale + (beta - mean * scale)``."""
    mean = channel_mean(net, x)
    scale = _root(net, "RSQRT", channel_mean(net, binary(net, "SQUARED_DIFFERENCE", x, mean)))
    scale = binary(net, "MUL", scale, net.constant(net.factors(x.shape[-1:])))
    offset = binary(net, "SUB", net.constant(net.normal(x.shape[-1:])), binary(net, "MUL", mean, scale))
    return binary(net, "ADD", binary(net, "MUL", x, scale), offset)


def layer_norm_of_quotients(net: Net, x: Tensor) -> Tensor:
    """By its definition, with factor and offset behind it."""
    centered = binary(net, "SUB", x, channel_mean(net, x))
    squares = net.op("SQUARE", [centered], np.square(centered.value))
    y = binary(net, "DIV", centered, _root(net, "SQRT", channel_mean(net, squares)))
    y = binary(net, "MUL", y, net.constant(net.factors(x.shape[-1:])))
    return binary(net, "ADD", y, net.constant(net.normal(x.shape[-1:])))


def layer_norm_of_products(net: Net, x: Tensor) -> Tensor:
    """A normalization whose difference is multiplied with itself, without a factor."""
    centered = binary(net, "SUB", x, channel_mean(net, x))
    variance = channel_mean(net, binary(net, "MUL", centered, centered))
    return binary(net, "MUL", _root(net, "RSQRT", variance), centered)


def layer_norm_of_rows(net: Net, x: Tensor) -> Tensor:
    """A normalization as PyTorch's converters write it: the rows of one image, whose means lose their axes in
    between.
    """
    rows = x.value.reshape(1, -1, x.shape[-1])
    y = _reshaped(net, x, rows.shape)
    means = []
    for _ in range(2):
        source = y if not means else binary(net, "SQUARED_DIFFERENCE", y, means[0])
        mean = net.op("MEAN", [source, net.integers([0, 2])], source.value.mean((0, 2)), terms=x.shape[-1])
        means.append(_reshaped(net, mean, (1, rows.shape[1], 1)))
    scale = _root(net, "RSQRT", _reshaped(net, means[1], (rows.shape[1],)))
    mean = _reshaped(net, means[0], (rows.shape[1],))
    offset = binary(net, "SUB", number(net, 0), binary(net, "MUL", mean, scale))
    y = binary(net, "MUL", y, _reshaped(net, scale, (1, rows.shape[1], 1)))
    return _reshaped(net, binary(net, "ADD", y, _reshaped(net, offset, (1, rows.shape[1], 1))), x.shape)


def layer_norm_of_moments(net: Net, x: Tensor) -> Tensor:
    """A normalization as Flax writes it: the mean of squares without the square of the mean, at least 0."""
    mean = channel_mean(net, x)
    squares = net.op("SQUARE", [x], np.square(x.value))
    variance = binary(net, "SUB", channel_mean(net, squares), binary(net, "MUL", mean, mean))
    positive = net.op("MAXIMUM", [number(net, 0), variance], np.maximum(variance.value, 0))
    scale = binary(net, "DIV", number(net, 1), _root(net, "SQRT", positive))
    return binary(net, "MUL", binary(net, "SUB", x, mean), scale)


def layer_norm_of_powers(net: Net, x: Tensor) -> Tensor:
    """A normalization as onnx2tf writes it."""
    centered = binary(net, "SUB", x, channel_mean(net, x))
    squares = net.op("POW", [centered, number(net, 2)], np.square(centered.value))
    y = binary(net, "DIV", centered, _root(net, "SQRT", channel_mean(net, squares)))
    return binary(net, "MUL", net.constant(net.factors(x.shape[-1:])), y)


def rms_norm_of_products(net: Net, x: Tensor) -> Tensor:
    """An RMSNorm as PyTorch writes it, before a factor."""
    scale = _root(net, "RSQRT", channel_mean(net, binary(net, "MUL", x, x)))
    return binary(net, "MUL", net.constant(net.factors(x.shape[-1:])), binary(net, "MUL", x, scale))


def rms_norm_of_quotients(net: Net, x: Tensor) -> Tensor:
    """By its definition."""
    squares = net.op("POW", [x, number(net, 2)], np.square(x.value))
    return binary(net, "DIV", x, _root(net, "SQRT", channel_mean(net, squares)))


def rms_norm_of_factors(net: Net, x: Tensor) -> Tensor:
    """An RMSNorm with the factor in the number of a row's pixel, as Keras writes it."""
    squares = net.op("SQUARE", [x], np.square(x.value))
    scale = binary(net, "MUL", _root(net, "RSQRT", channel_mean(net, squares)), net.constant(net.factors(x.shape[-1:])))
    return binary(net, "MUL", x, scale)


def _reshaped(net: Net, x: Tensor, shape: tuple[int, ...]) -> Tensor:
    return net.op("RESHAPE", [x, net.integers(shape)], x.value.reshape(shape), {"new_shape": list(shape)})


LAYER_NORMS: tuple[Callable[[Net, Tensor], Tensor], ...] = (
    layer_norm_of_batch_norms,
    layer_norm_of_quotients,
    layer_norm_of_products,
    layer_norm_of_rows,
    layer_norm_of_moments,
    layer_norm_of_powers,
    rms_norm_of_products,
    rms_norm_of_quotients,
    rms_norm_of_factors,
)


def rounded(net: Net, x: Tensor, scale: float) -> Tensor:
    """The tensor on a grid that is so coarse that no sum in half precision comes near to the middle of two numbers."""
    value = scale * np.clip(np.trunc(x.value / scale + np.copysign(0.5, x.value)), -128, 127)
    return net.op("DEQUANTIZE", [net.quantized("QUANTIZE", x, value, "int8", scale, 0)], value)
