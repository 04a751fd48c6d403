"""Small networks whose nodes fuse."""

from __future__ import annotations

import numpy as np

from tests.ops.case import Net, Tensor
from tflgpu.model.writer import ModelBuilder


def product(net: Net, x: Tensor, gates: Tensor) -> Tensor:
    return net.op("MUL", [x, gates], x.value * gates.value)


class PairNet:
    """A model of pointwise and depthwise convolutions; a first one makes an image of halves."""

    def __init__(self, channels: int = 24) -> None:
        self.builder, self.random, self.channels = ModelBuilder(), np.random.default_rng(0), channels
        self.image = self.convolution(self.builder.input((1, 8, 8, 12)), 12, 16)

    def constant(self, *shape: int) -> int:
        return self.builder.constant(self.random.normal(size=shape).astype(np.float32))

    def result(self, channels: int) -> int:
        return self.builder.tensor((1, 8, 8, channels))

    def convolution(self, x: int, depth: int, channels: int, side: int = 1, activation: str = "NONE") -> int:
        y = self.result(channels)
        options = {"padding": "SAME", "stride_h": 1, "stride_w": 1, "fused_activation_function": activation}
        weights = self.constant(channels, side, side, depth)
        self.builder.op("CONV_2D", [x, weights, self.constant(channels)], [y], options)
        return y

    def pointwise(self, side: int = 1, activation: str = "RELU6") -> int:
        return self.convolution(self.image, 16, self.channels, side, activation)

    def depthwise(self, x: int, side: int = 3, multiplier: int = 1, channels: int | None = None) -> int:
        channels = (channels or self.channels) * multiplier
        y, weights = self.result(channels), self.constant(1, side, side, channels)
        options = {"padding": "SAME", "stride_h": 1, "stride_w": 1, "depth_multiplier": multiplier}
        options |= {"fused_activation_function": "RELU"}
        self.builder.op("DEPTHWISE_CONV_2D", [x, weights, self.constant(channels)], [y], options)
        return y

    def mean(self, x: int, *axes: int) -> int:
        shape = tuple(1 if axis in axes else size for axis, size in enumerate((1, 8, 8, self.channels)))
        y, listed = self.builder.tensor(shape), self.builder.constant(np.array(axes, np.int32))
        self.builder.op("MEAN", [x, listed], [y], {"keep_dims": True})
        return y

    def op(self, code: str, *inputs: int) -> int:
        y = self.result(self.channels)
        self.builder.op(code, list(inputs), [y], {"fused_activation_function": "NONE"} if code == "ADD" else None)
        return y


def convolutions(channels: int) -> bytes:
    """Two convolutions: the second reads what the first computes."""
    builder, random = ModelBuilder(), np.random.default_rng(0)
    x = builder.input((1, 9, 9, 3))
    for depth in (3, channels):
        weights = builder.constant(random.normal(size=(channels, 3, 3, depth)).astype(np.float32))
        bias = builder.constant(random.normal(size=channels).astype(np.float32))
        y = builder.tensor((1, 9, 9, channels))
        options = {"padding": "SAME", "stride_h": 1, "stride_w": 1, "fused_activation_function": "RELU"}
        builder.op("CONV_2D", [x, weights, bias], [y], options)
        x = y
    return builder.finish([x])
