"""EfficientNet-B0 (Tan and Le, 2019)."""

from __future__ import annotations

from benchmarks.zoo.network import Feature, Network

# (expansion, kernel, output channels, blocks, stride of the first); table 1 of the paper
_STAGES = (
    (1, 3, 16, 1, 1), (6, 3, 24, 2, 2), (6, 5, 40, 2, 2), (6, 3, 80, 3, 2), (6, 5, 112, 3, 1), (6, 5, 192, 4, 2),
    (6, 3, 320, 1, 1),
)  # fmt: skip
_SQUEEZE = 4  # a block's input channels by those of its squeeze-and-excitation
_BRANCH_SHARE = 0.5  # of the shortcut's spread, so that sums increase the activations only a little


def efficientnet_b0(size: int = 224, classes: int = 1000, seed: int = 0) -> bytes:
    """EfficientNet-B0 on (1, size, size, 3): 239 operators, 81 of them convolutions; swish is LOGISTIC and MUL."""
    net = Network(f"EfficientNet-B0 {size}, random weights", seed)
    x = net.conv(net.input(size), 32, 3, 2, activation="SWISH")
    for expansion, kernel, channels, blocks, first_stride in _STAGES:
        for block in range(blocks):
            x = _inverted_bottleneck(net, x, expansion, kernel, channels, 1 if block else first_stride)
    x = net.conv(x, 1280, activation="SWISH")
    return net.dense_classifier(net.mean(x), classes)


def _inverted_bottleneck(net: Network, x: Feature, expansion: int, kernel: int, channels: int, stride: int) -> Feature:
    depth = x.shape[3]
    expanded = x if expansion == 1 else net.conv(x, expansion * depth, activation="SWISH")
    filtered = net.depthwise(expanded, stride, kernel, "SWISH")
    excited = net.squeeze_and_excitation(filtered, depth // _SQUEEZE)
    if stride != 1 or depth != channels:
        return net.conv(excited, channels)
    return net.add(x, net.conv(excited, channels, std=_BRANCH_SHARE * x.std))
