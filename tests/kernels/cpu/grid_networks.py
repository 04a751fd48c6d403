"""Networks of 8-bit integers whose operators read and write what is stored on a grid."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.support.models import Builder
from tflgpu.model.tensor_info import Quantization

ONES = {"dilation_h_factor": 1, "dilation_w_factor": 1}


class Quantized(Builder):
    """A Builder of tensors of 8-bit integers. Grids are drawn, such that results fill about a half of them."""

    def __init__(self, seed: int, dtype: str = "int8") -> None:
        super().__init__(seed)
        self.dtype = dtype
        self.given: list[tuple[int, ...]] = []  # shapes of inputs

    def tensor_grid(self, tensor: int) -> Quantization:
        found = self._tensors[tensor].quantization
        assert found is not None
        return found

    def grid(self, scale: float | None = None) -> Quantization:
        limits = np.iinfo(self.dtype)
        middle = (limits.min + limits.max + 1) // 2
        zero = middle + int(self.random.integers(-100, 100))
        return Quantization([float(np.float32(scale or self.random.uniform(0.01, 0.03)))], [zero])

    def image(self, *shape: int) -> int:
        """Integers that a kernel computes: those of the input, on another grid."""
        return self.image_on(self.grid(), *shape)

    def image_on(self, grid: Quantization, *shape: int) -> int:
        """The same on a given grid."""
        self.given.append(shape)
        x = self.input(shape, self.dtype, quantization=self.grid())
        return self.add("QUANTIZE", [x], shape, self.dtype, quantization=grid)

    def rounded(self, code: str, inputs: Sequence[int], shape: Sequence[int], **options: object) -> int:
        """An operator whose result has a grid of its own."""
        fixed = {"SOFTMAX": 1 / 256, "LOGISTIC": 1 / 256}.get(code)
        grid = Quantization([fixed], [np.iinfo(self.dtype).min]) if fixed else self.grid()
        return self.add(code, inputs, shape, self.dtype, quantization=grid, **options)

    def moved(self, code: str, inputs: Sequence[int], shape: Sequence[int], **options: object) -> int:
        """An operator whose result has the grid of its input."""
        return self.add(code, inputs, shape, self.dtype, quantization=self.tensor_grid(inputs[0]), **options)

    def filters(self, x: int, *shape: int, axis: int = 0) -> list[int]:
        """Weights, whose products with an image are of its size, and a bias."""
        scale = np.float32(1 / (60 * np.sqrt(np.prod(shape) / shape[axis])))
        zero = 0 if self.dtype == "int8" else 128
        q = (self.random.integers(-127, 128, shape) + zero).astype(self.dtype)
        bias = self.random.integers(-2000, 2000, shape[axis]).astype(np.int32)
        return [
            self.constant(q, quantization=Quantization([float(scale)], [zero])),
            self.constant(
                bias, quantization=Quantization([float(scale * np.float32(self.tensor_grid(x).scale[0]))], [0])
            ),
        ]

    def dense(self, x: int, out: int, side: int = 1, stride: int = 1, activation: str = "NONE") -> int:
        batch, height, width, channels = self.shape(x)
        shape = (batch, -(-height // stride), -(-width // stride), out)
        options = {"padding": "SAME", "stride_h": stride, "stride_w": stride, "fused_activation_function": activation}
        return self.rounded("CONV_2D", [x, *self.filters(x, out, side, side, channels)], shape, **options, **ONES)

    def depthwise_of(self, x: int, kernel: tuple[int, int] = (3, 3), stride: int = 1, dilation: int = 1) -> int:
        batch, height, width, channels = self.shape(x)
        shape = (batch, -(-height // stride), -(-width // stride), channels)
        dilations = {"dilation_h_factor": dilation, "dilation_w_factor": dilation}
        options = {"padding": "SAME", "stride_h": stride, "stride_w": stride, "depth_multiplier": 1, **dilations}
        return self.rounded("DEPTHWISE_CONV_2D", [x, *self.filters(x, 1, *kernel, channels, axis=3)], shape, **options)

    def pool(self, code: str, x: int, side: int, stride: int, padding: str) -> int:
        batch, height, width, channels = self.shape(x)
        taken = side - 1 if padding == "VALID" else 0
        shape = (batch, -(-(height - taken) // stride), -(-(width - taken) // stride), channels)
        window = {"filter_height": side, "filter_width": side, "stride_h": stride, "stride_w": stride}
        return self.moved(code, [x], shape, padding=padding, **window)


def _matmul(m: Quantized, adjoint: bool) -> int:
    right = (1, 3, 11, 9) if adjoint else (1, 3, 9, 11)
    return m.rounded("BATCH_MATMUL", [m.image(1, 3, 13, 9), m.image(*right)], (1, 3, 13, 11), adj_y=adjoint)


def _concatenated(m: Quantized, channels: Sequence[int], axis: int) -> int:
    """A concatenation of parts on the grid of the result, as converters write it."""
    grid = m.grid()
    parts = [m.image_on(grid, 1, 5, 7, n) for n in channels]
    shape = [1, 5, 7, channels[0]]
    shape[axis] = sum(channels) if axis == 3 else shape[axis] * len(channels)
    return m.moved("CONCATENATION", parts, shape, axis=axis)


def _added(m: Quantized, shape: Sequence[int], other: Sequence[int]) -> int:
    return m.rounded("ADD", [m.image(*shape), m.image(*other)], shape)


def _mean(m: Quantized, axes: Sequence[int], code: str = "MEAN") -> int:
    shape = [1 if i in axes else d for i, d in enumerate((1, 7, 9, 37))]
    add = m.rounded if code == "MEAN" else m.moved
    return add(code, [m.image(1, 7, 9, 37), m.ints(axes)], shape, keep_dims=True)


def _resized(m: Quantized, code: str, size: tuple[int, int]) -> int:
    """To the grid of the image, as LiteRT's kernels have it."""
    return m.moved(code, [m.image(1, 6, 5, 10), m.ints(size)], (1, *size, 10))


def _sliced(m: Quantized) -> int:
    return m.moved("SLICE", [m.image(1, 7, 6, 22), m.ints([0, 2, 1, 5]), m.ints([1, 4, 5, 13])], (1, 4, 5, 13))


def _padded(m: Quantized) -> int:
    paddings = m.ints([[0, 0], [1, 2], [3, 0], [0, 1]])
    return m.moved("PAD", [m.image(1, 4, 5, 6), paddings], (1, 7, 8, 7))


def _transposed(m: Quantized) -> int:
    return m.moved("TRANSPOSE", [m.image(2, 5, 6, 7), m.ints([0, 3, 1, 2])], (2, 7, 5, 6))


def _reshaped(m: Quantized) -> int:
    return m.moved("RESHAPE", [m.image(1, 5, 6, 7)], (1, 7, 10, 3), new_shape=[1, 7, 10, 3])


def _gathered(m: Quantized) -> int:
    return m.moved("GATHER", [m.image(1, 9, 5, 6), m.ints([3, 0, 7])], (1, 3, 5, 6), axis=1)


def _layer(m: Quantized, images: int, depth: int, out: int) -> int:
    x = m.image(images, depth)
    return m.rounded("FULLY_CONNECTED", [x, *m.filters(x, out, depth)], (images, out))


def _inverse(m: Quantized) -> int:
    x = m.image(1, 5, 7, 12)
    weights, bias = m.filters(x, 10, 3, 3, 12)
    inputs = [m.ints([1, 10, 14, 10]), weights, x, bias]
    return m.rounded("TRANSPOSE_CONV", inputs, (1, 10, 14, 10), padding="SAME", stride_h=2, stride_w=2)


NETWORKS: Mapping[str, Callable[[Quantized], int]] = {
    "packed convolution": lambda m: m.dense(m.image(1, 9, 7, 33), 48, 3),
    "packed convolution with strides": lambda m: m.dense(m.image(2, 9, 11, 32), 48, 3, 2, "RELU"),
    "pointwise convolution": lambda m: m.dense(m.image(1, 6, 11, 17), 21),
    "deep pointwise convolution": lambda m: m.dense(m.image(1, 6, 11, 160), 64),
    "convolution of few channels": lambda m: m.dense(m.image(1, 8, 9, 3), 7, 3),
    "depthwise": lambda m: m.depthwise_of(m.image(1, 7, 10, 9)),
    "depthwise with strides": lambda m: m.depthwise_of(m.image(1, 9, 11, 9), (5, 3), 2),
    "dilated depthwise": lambda m: m.depthwise_of(m.image(2, 7, 13, 6), dilation=2),
    "narrow depthwise": lambda m: m.depthwise_of(m.image(1, 6, 3, 6)),
    "upright depthwise": lambda m: m.depthwise_of(m.image(1, 19, 1, 6), (5, 1)),
    "pointwise and depthwise": lambda m: m.depthwise_of(m.dense(m.image(1, 12, 13, 20), 32)),
    "convolution and depthwise": lambda m: m.depthwise_of(m.dense(m.image(1, 24, 26, 3), 16, 3, 2)),
    "depthwise and pointwise": lambda m: m.dense(m.depthwise_of(m.image(1, 12, 13, 20)), 32),
    "transposed convolution": _inverse,
    "fully connected": lambda m: _layer(m, 5, 39, 50),
    "fully connected with one image": lambda m: _layer(m, 1, 64, 37),
    "average pooling": lambda m: m.pool("AVERAGE_POOL_2D", m.image(1, 7, 10, 9), 3, 1, "VALID"),
    "padded average pooling": lambda m: m.pool("AVERAGE_POOL_2D", m.image(1, 7, 10, 9), 3, 2, "SAME"),
    "maximum pooling": lambda m: m.pool("MAX_POOL_2D", m.image(1, 7, 10, 9), 2, 2, "VALID"),
    "padded maximum pooling": lambda m: m.pool("MAX_POOL_2D", m.image(1, 7, 10, 9), 3, 2, "SAME"),
    "sum": lambda m: _added(m, (1, 5, 7, 9), (1, 5, 7, 9)),
    "sum with channels": lambda m: _added(m, (1, 5, 7, 9), (1, 1, 1, 9)),
    "sum with one channel": lambda m: _added(m, (1, 5, 7, 9), (1, 5, 7, 1)),
    "concatenation in place": lambda m: _concatenated(m, (8, 12, 4), 3),
    "concatenation of rows": lambda m: _concatenated(m, (6, 6), 1),
    "concatenation of odd channels": lambda m: _concatenated(m, (5, 7), 3),
    "mean of pixels": lambda m: _mean(m, (1, 2)),
    "mean of channels": lambda m: _mean(m, (3,)),
    "greatest of pixels": lambda m: _mean(m, (1, 2), "REDUCE_MAX"),
    "softmax": lambda m: m.rounded("SOFTMAX", [m.image(1, 3, 5, 22)], (1, 3, 5, 22), beta=1.0),
    "function": lambda m: m.rounded("LOGISTIC", [m.dense(m.image(1, 3, 5, 6), 6)], (1, 3, 5, 6)),
    "wider image": lambda m: _resized(m, "RESIZE_BILINEAR", (11, 13)),
    "smaller image": lambda m: _resized(m, "RESIZE_BILINEAR", (4, 3)),
    "nearest pixels": lambda m: _resized(m, "RESIZE_NEAREST_NEIGHBOR", (12, 10)),
    "product of matrices": lambda m: _matmul(m, adjoint=False),
    "product with an adjoint": lambda m: _matmul(m, adjoint=True),
    "slice": _sliced,
    "padding": _padded,
    "transpose": _transposed,
    "reshape": _reshaped,
    "gather": _gathered,
}


def network(name: str, seed: int, dtype: str = "int8") -> tuple[bytes, list[NDArray[Any]]]:
    """A model and its inputs. Its output is what the network computes, with another zero point."""
    m = Quantized(seed, dtype)
    y = NETWORKS[name](m)
    quantization = m.tensor_grid(y)
    shifted = m.grid(quantization.scale[0])
    model = m.finish([m.add("QUANTIZE", [y], m.shape(y), dtype, quantization=shifted)])
    limits = np.iinfo(dtype)
    return model, [m.random.integers(limits.min, limits.max + 1, shape).astype(dtype) for shape in m.given]
