"""ResNet50 (He et al., "Deep Residual Learning for Image Recognition", 2016)."""

from __future__ import annotations

from benchmarks.zoo.network import Feature, Network

_STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))  # (inner channels, blocks, stride of the first)
_EXPANSION = 4
_BRANCH_SHARE = 0.3  # of the shortcut's spread, so that sixteen sums increase the activations only a little


def resnet50(size: int = 224, classes: int = 1000, seed: int = 0) -> bytes:
    """ResNet50 on (1, size, size, 3): 75 operators, 53 of them convolutions.

    As in the paper, the first 1x1 convolution of a block has the stride; later versions have it in the 3x3.
    """
    net = Network(f"ResNet50 {size}, random weights", seed)
    x = net.conv(net.pad(net.input(size), 3), 64, 7, 2, padding="VALID", activation="RELU")
    x = net.max_pool(net.pad(x, 1), 3, 2)
    for channels, blocks, first_stride in _STAGES:
        for block in range(blocks):
            x = _bottleneck(net, x, channels, first_stride if block == 0 else 1, project=block == 0)
    return net.dense_classifier(net.mean(x), classes)


def _bottleneck(net: Network, x: Feature, channels: int, stride: int, *, project: bool) -> Feature:
    shortcut = net.conv(x, channels * _EXPANSION, 1, stride) if project else x
    y = net.conv(x, channels, 1, stride, activation="RELU")
    y = net.conv(y, channels, 3, activation="RELU")
    y = net.conv(y, channels * _EXPANSION, std=_BRANCH_SHARE * shortcut.std)
    return net.add(shortcut, y, activation="RELU")
