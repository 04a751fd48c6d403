"""Small networks whose nodes fuse."""

from __future__ import annotations

from tests.ops.case import Net, Tensor
from tests.support.models import Builder


def product(net: Net, x: Tensor, gates: Tensor) -> Tensor:
    return net.op("MUL", [x, gates], x.value * gates.value)


class PairNet(Builder):
    """A model of pointwise and depthwise convolutions; a first one makes an image of halves."""

    def __init__(self, channels: int = 24) -> None:
        super().__init__()
        self.channels = channels
        self.image = self.convolution(self.input((1, 8, 8, 12)), 16)

    def pointwise(self, side: int = 1, activation: str = "RELU6") -> int:
        return self.convolution(self.image, self.channels, side, fused_activation_function=activation)

    def mean(self, x: int, *axes: int) -> int:
        shape = [1 if axis in axes else size for axis, size in enumerate(self.shape(x))]
        return self.add("MEAN", [x, self.ints(axes)], shape, keep_dims=True)


def convolutions(channels: int) -> bytes:
    """Two convolutions: the second reads what the first computes."""
    builder = Builder()
    x = builder.input((1, 9, 9, 3))
    for _ in range(2):
        x = builder.convolution(x, channels, 3, fused_activation_function="RELU")
    return builder.finish([x])
