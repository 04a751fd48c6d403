"""Models in double precision: the judge where LiteRT's CPU rounds what it computes with.

Its dynamic-range kernels, which products of floats and 8-bit weights get, round activations to 8 bits at run time. Here
weights are the numbers that they stand for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.ops import reference, windows
from tests.ops.reference import ACTIVATIONS
from tests.ops.windows import Window
from tflgpu.model.model import FileTensor, Operator
from tflgpu.model.reader import read_model

Array = NDArray[np.float64]

# By the numbers of the schema (ActivationFunctionType, Padding).
ACTIVATION_NAMES = ("NONE", "RELU", "RELU_N1_TO_1", "RELU6", "TANH")
PADDING_NAMES = ("SAME", "VALID")


def run(model: bytes, *inputs: NDArray[Any]) -> list[Array]:
    """The outputs of a model of the operators below, whose activations are floats."""
    (graph,) = read_model(model).subgraphs
    values = {tensor.index: _real(tensor) for tensor in graph.tensors if tensor.data is not None}
    values |= {index: value.astype(np.float64) for index, value in zip(graph.inputs, inputs, strict=True)}
    for operator in graph.operators:
        (output,) = operator.outputs
        operands = [values[index] if index >= 0 else np.zeros(()) for index in operator.inputs]
        value = OPERATORS[operator.code](operator, operands, graph.tensors[output].shape)
        values[output] = ACTIVATIONS[_activation(operator.options)](value)
    return [values[index] for index in graph.outputs]


def _real(tensor: FileTensor) -> Array:
    """The numbers that a constant stands for."""
    data = np.asarray(tensor.data).astype(np.float64)
    if (grid := tensor.quantization) is None:
        return data
    along = [1] * data.ndim
    if len(grid.scale) > 1:
        along[grid.axis] = -1
    scale, zero = (np.reshape(numbers, along) for numbers in (grid.scale, grid.zero_point))
    return np.asarray(scale * (data - zero))


def _activation(options: Mapping[str, Any]) -> str:
    return ACTIVATION_NAMES[options.get("fused_activation_function", 0)]


def _window(kernel: Sequence[int], o: Mapping[str, Any]) -> Window:
    height, width = kernel
    dilation = o.get("dilation_h_factor", 1), o.get("dilation_w_factor", 1)
    return Window((height, width), (o["stride_h"], o["stride_w"]), dilation, PADDING_NAMES[o["padding"]])


def _convolution(compute: Callable[[Array, Array, Array, Window], Array]) -> Callable[..., Array]:
    return lambda o, x, shape: compute(x[0], x[1], x[2], _window(x[1].shape[1:3], o.options))


def _average_pool(o: Operator, x: list[Array], shape: tuple[int, ...]) -> Array:
    kernel = o.options["filter_height"], o.options["filter_width"]
    return windows.average_pool_2d(x[0], _window(kernel, o.options))


OPERATORS: Mapping[str, Callable[[Operator, list[Array], tuple[int, ...]], Array]] = {
    "ADD": lambda o, x, shape: x[0] + x[1],
    "AVERAGE_POOL_2D": _average_pool,
    "CONV_2D": _convolution(windows.conv_2d),
    "DEPTHWISE_CONV_2D": _convolution(windows.depthwise_conv_2d),
    "FULLY_CONNECTED": lambda o, x, shape: reference.fully_connected(x[0], x[1], x[2]),
    "RESHAPE": lambda o, x, shape: x[0].reshape(shape),
    "SOFTMAX": lambda o, x, shape: reference.softmax(x[0], o.options["beta"]),
}
