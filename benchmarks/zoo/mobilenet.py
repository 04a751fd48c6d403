"""MobileNetV1 (Howard et al., 2017) and MobileNetV2 (Sandler et al., 2018)."""

from __future__ import annotations

from benchmarks.zoo.network import Network

V1_BLOCKS = (  # (output channels, stride) of the depthwise separable convolutions; table 1 of the paper
    (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2),
    (512, 1), (512, 1), (512, 1), (512, 1), (512, 1), (1024, 2), (1024, 1),
)  # fmt: skip
V2_STAGES = (  # (expansion, output channels, blocks, stride of the first); table 2 of the paper
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
)  # fmt: skip


def mobilenet_v1(alpha: float = 1.0, size: int = 224, classes: int = 1001, seed: int = 0) -> bytes:
    """MobileNetV1 of width ``alpha`` on (1, size, size, 3): 31 operators, 28 of them convolutions."""
    net = Network(f"MobileNetV1 {alpha} {size}, random weights", seed)
    x = net.conv(net.input(size), _v1_width(32, alpha), 3, 2, activation="RELU6")
    for channels, stride in V1_BLOCKS:
        x = net.conv(net.depthwise(x, stride), _v1_width(channels, alpha), activation="RELU6")
    return net.conv_classifier(net.average_pool(x), classes)


def mobilenet_v2(alpha: float = 1.0, size: int = 224, classes: int = 1001, seed: int = 0) -> bytes:
    """MobileNetV2 of width ``alpha`` on (1, size, size, 3): 65 operators, 52 of them convolutions."""
    net = Network(f"MobileNetV2 {alpha} {size}, random weights", seed)
    x = net.conv(net.input(size), _v2_width(32, alpha), 3, 2, activation="RELU6")
    for expansion, channels, blocks, first_stride in V2_STAGES:
        for block in range(blocks):
            expanded = x if expansion == 1 else net.conv(x, x.shape[3] * expansion, activation="RELU6")
            stride = first_stride if block == 0 else 1
            projected = net.conv(net.depthwise(expanded, stride), _v2_width(channels, alpha))
            x = net.add(x, projected) if block else projected
    x = net.conv(x, _v2_width(1280, max(alpha, 1.0)), activation="RELU6")
    return net.dense_classifier(net.mean(x), classes)


def _v1_width(channels: int, alpha: float) -> int:
    return max(int(channels * alpha), 8)


def _v2_width(channels: int, alpha: float) -> int:
    """The multiple of 8 nearest to ``channels * alpha``, but never more than a tenth below it."""
    scaled = channels * alpha
    width = max(8, int(scaled + 4) // 8 * 8)
    return width + 8 if width < 0.9 * scaled else width
