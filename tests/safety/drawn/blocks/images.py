"""Parts of convolutional networks: residuals, groups, splits, shuffles and concatenations."""

from __future__ import annotations

from math import prod

import numpy as np

from tests.ops import reference, windows
from tests.ops.windows import Window
from tests.safety.drawn.blocks.spellings import activation, layer_norm, linear, norm, residual
from tests.safety.drawn.blocks.writer import Value, Writer

FUSED = ("NONE", "NONE", "RELU", "RELU6")


def convolution(
    w: Writer,
    x: Value,
    out: int,
    kernel: tuple[int, int] = (1, 1),
    *,
    stride: int = 1,
    dilation: int = 1,
    groups: int = 1,
    fused: str = "NONE",
    padding: str = "SAME",
) -> Value:
    """groups: how many parts of the channels have filters of their own."""
    depth = x.shape[3] // groups
    weights = w.normal(out, *kernel, depth, scale=(depth * prod(kernel)) ** -0.5)
    window = Window(kernel, (stride, stride), (dilation, dilation), padding)
    constants = [w.constant(weights), w.constant(w.normal(out, scale=0.3))]
    return w.op(
        "CONV_2D",
        [x, *constants],
        lambda x, f, b: windows.conv_2d(x, f, b, window),
        activation=fused,
        **_options(window),
    )


def depthwise(w: Writer, x: Value, side: int = 3, *, stride: int = 1, dilation: int = 1, fused: str = "NONE") -> Value:
    channels, window = x.shape[3], Window((side, side), (stride, stride), (dilation, dilation), "SAME")
    constants = [w.constant(w.normal(1, side, side, channels, scale=1 / side)), w.constant(w.normal(channels))]
    return w.op(
        "DEPTHWISE_CONV_2D",
        [x, *constants],
        lambda x, f, b: windows.depthwise_conv_2d(x, f, b, window),
        activation=fused,
        depth_multiplier=1,
        **_options(window),
    )


def _options(window: Window) -> dict[str, object]:
    (stride_h, stride_w), (dilation_h, dilation_w) = window.stride, window.dilation
    return {
        "padding": window.padding,
        "stride_h": stride_h,
        "stride_w": stride_w,
        "dilation_h_factor": dilation_h,
        "dilation_w_factor": dilation_w,
    }


def padded(w: Writer, x: Value, margin: int) -> Value:
    """An image that is padded as litert-torch does it: apart from the convolution."""
    around = [(0, 0), (margin, margin), (margin, margin), (0, 0)]
    return w.op("PAD", [x, w.ints(around)], lambda x, _: np.pad(x, around))


def plain(w: Writer, x: Value) -> Value:
    """A residual block of two convolutions, or of three with groups in the middle."""
    channels = x.shape[3]
    groups = w.one_of([n for n in (1, 1, 2, 4) if channels % n == 0])
    if groups == 1 and w.chance(0.5):
        if w.chance(0.5):
            y = convolution(w, padded(w, x, 1), channels, (3, 3), fused="RELU", padding="VALID")
        else:
            y = convolution(w, x, channels, (3, 3), fused="RELU")
        y = convolution(w, y, channels, (3, 3))
    else:
        y = convolution(w, x, channels, fused=w.one_of(FUSED))
        y = activation(w, convolution(w, y, channels, (3, 3), groups=groups))
        if w.chance(0.5):
            y = excited(w, y)
        y = convolution(w, y, channels)
    return w.add(x, y, w.one_of(("NONE", "RELU")))


def one_axis(w: Writer, x: Value) -> Value:
    """Convolutions over one axis, one after the other."""
    channels, size = x.shape[3], w.one_of((3, 5, 7))
    y = convolution(w, x, channels, (1, size), fused=w.one_of(FUSED), dilation=w.one_of((1, 1, 2)))
    return residual(w, x, convolution(w, y, channels, (size, 1)))


def inverted(w: Writer, x: Value) -> Value:
    """MobileNet's block, with squeeze-and-excitation or without."""
    channels = x.shape[3]
    hidden = channels * w.one_of((1, 2, 3))
    y = activation(w, convolution(w, x, hidden))
    y = activation(w, depthwise(w, y, w.one_of((3, 3, 5)), dilation=w.one_of((1, 1, 1, 2, 3))))
    if w.chance(0.5):
        y = excited(w, y)
    return residual(w, x, convolution(w, y, channels))


def excited(w: Writer, x: Value) -> Value:
    """Squeeze-and-excitation, of convolutions or of linear layers."""
    batch, height, width, channels = x.shape
    hidden, axes = max(1, channels // w.one_of((2, 4))), w.ints([1, 2])
    kept = w.chance(0.7)
    if kept and w.chance(0.2):
        window = Window((height, width))
        options = {**_options(window), "filter_height": height, "filter_width": width}
        for name in ("dilation_h_factor", "dilation_w_factor"):
            del options[name]
        mean = w.op("AVERAGE_POOL_2D", [x], lambda x: windows.average_pool_2d(x, window), activation="NONE", **options)
    else:
        mean = w.op("MEAN", [x, axes], lambda x, _: x.mean((1, 2), keepdims=kept), keep_dims=kept)
    if kept:
        y = convolution(w, activation(w, convolution(w, mean, hidden)), channels)
    else:
        y = linear(w, activation(w, linear(w, mean, hidden)), channels)
        y = w.reshape(y, batch, 1, 1, channels)
    if w.chance(0.7):
        share = w.op("LOGISTIC", [y], reference.logistic)
    else:
        clipped = w.op("RELU6", [w.add(y, w.constant(3.0))], reference.relu6)
        share = w.multiply(clipped, w.constant(1 / 6))
    return w.multiply(x, share)


def dense(w: Writer, x: Value) -> Value:
    """DenseNet's growing concatenation, and the convolution that shortens it."""
    channels, growth = x.shape[3], w.one_of((4, 6, 8, 12))
    parts = [x]
    for _ in range(w.random.randint(2, 4)):
        joined = w.concatenate(parts, 3) if len(parts) > 1 else x
        y = _scaled(w, joined)
        if w.chance(0.5):
            y = convolution(w, y, 2 * growth, fused="RELU")
        y = convolution(w, y, growth, (3, 3))
        parts = [joined, y] if w.chance(0.5) else [*parts, y]
    return convolution(w, _scaled(w, w.concatenate(parts, 3)), channels)


def _scaled(w: Writer, x: Value) -> Value:
    """A batch normalization that could not be folded, and RELU."""
    y = w.multiply(x, w.constant(w.factors(x.shape[3])))
    if w.chance(0.5):
        return w.add(y, w.constant(w.normal(x.shape[3], scale=0.3)), "RELU")
    return w.op("RELU", [w.add(y, w.constant(w.normal(x.shape[3], scale=0.3)))], reference.relu)


def ghost(w: Writer, x: Value) -> Value:
    """GhostNet's: half of the channels are computed of the other half."""
    channels = x.shape[3]
    first = convolution(w, x, channels // 2, fused="RELU")
    cheap = depthwise(w, first, fused="RELU")
    y = w.concatenate([first, cheap], 3)
    if w.chance(0.3):
        y = w.slice(w.concatenate([y, depthwise(w, cheap)], 3), 3, 0, channels)
    return residual(w, x, y) if y.shape == x.shape else convolution(w, y, channels)


def shuffled(w: Writer, x: Value) -> Value:
    """ShuffleNet's: half of the channels passes, then both halves are mixed."""
    batch, height, width, channels = x.shape
    left, right = w.parts(x, 3, 2)
    y = convolution(w, right, channels // 2, fused="RELU")
    y = convolution(w, depthwise(w, y), channels // 2, fused="RELU")
    y = w.concatenate([left, y], 3)
    groups = w.one_of([n for n in (2, 4) if channels % n == 0])
    if w.chance(0.4):  # of planes, as PyTorch has them
        planes = w.reshape(w.transpose(y, 0, 3, 1, 2), batch, groups, channels // groups, height, width)
        mixed = w.reshape(w.transpose(planes, 0, 2, 1, 3, 4), batch, channels, height, width)
        return w.transpose(mixed, 0, 2, 3, 1)
    apart = w.reshape(y, batch, height, width, groups, channels // groups)
    return w.reshape(w.transpose(apart, 0, 1, 2, 4, 3), batch, height, width, channels)


def between_planes(w: Writer, x: Value) -> Value:
    """Convolutions between transposes, and what a converter leaves in the order of planes."""
    channels = x.shape[3]
    planes = w.transpose(x, 0, 3, 1, 2)
    y = convolution(w, w.transpose(planes, 0, 2, 3, 1), channels, (3, 3), fused=w.one_of(FUSED))
    y = w.transpose(y, 0, 3, 1, 2)
    if w.chance(0.5):
        y = w.multiply(y, w.constant(w.factors(channels, 1, 1)))
    y = activation(w, w.add(y, w.constant(w.normal(channels, 1, 1)))) if w.chance(0.3) else y
    z = w.transpose(y, 0, 2, 3, 1)
    z = w.transpose(convolution(w, z, channels), 0, 3, 1, 2)
    return w.transpose(w.add(planes, z), 0, 2, 3, 1)


def convnext(w: Writer, x: Value) -> Value:
    """A depthwise convolution, LayerNorm, and two pointwise layers."""
    channels = x.shape[3]
    y = layer_norm(w, depthwise(w, x, w.one_of((3, 5, 7))))
    y = linear(w, activation(w, linear(w, y, 2 * channels)), channels)
    return residual(w, x, y)


def normalized(w: Writer, x: Value) -> Value:
    return residual(w, x, convolution(w, activation(w, norm(w, x)), x.shape[3], (3, 3)))


def fused_levels(w: Writer, x: Value) -> Value:
    """A smaller image, and its return to the size before: a decoder's step."""
    _, height, width, channels = x.shape
    y = convolution(w, x, channels, (3, 3), stride=2, fused="RELU")
    size = (height, width)
    centers = w.chance(0.5)
    y = w.op(
        "RESIZE_BILINEAR",
        [y, w.ints(size)],
        lambda x, _: reference.resize_bilinear(x, size, False, centers),
        align_corners=False,
        half_pixel_centers=centers,
    )
    if w.chance(0.5):
        return w.add(x, y)
    return convolution(w, w.concatenate([x, y], 3), channels, fused=w.one_of(FUSED))
