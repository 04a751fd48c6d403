"""Draws networks: some of the parts one after another, of rows, of an image, or of an image and then of its rows."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.safety.drawn.blocks import images
from tests.safety.drawn.blocks.attentions import (
    attention,
    channel_attention,
    cross_attention,
    linear_attention,
    window_attention,
)
from tests.safety.drawn.blocks.spellings import activation, feed_forward, linear, norm, residual
from tests.safety.drawn.blocks.writer import Drawn, Value, Writer

Part = Callable[[Writer, Value], Value]

BATCHES = (1, 1, 1, 1, 2, 3)
ROWS = (1, 3, 4, 7, 9, 16, 17, 25, 36, 49, 64)
WIDTHS = (8, 12, 16, 20, 24, 32, 40, 48, 64)
SIDES = (3, 4, 7, 8, 9, 12, 14)
CHANNELS = (4, 6, 8, 10, 12, 16, 20, 24, 32)


def encoder_layer(mixer: Part) -> Part:
    """A part in a residual, with its normalization before it or after the sum; then a feed-forward part."""

    def layer(w: Writer, x: Value) -> Value:
        for part in (mixer, feed_forward) if w.chance(0.5) else (mixer,):
            if w.chance(0.75):
                y = part(w, norm(w, x))
                x = residual(w, x, y) if y.shape == x.shape else y
            else:
                y = part(w, x)
                x = norm(w, residual(w, x, y) if y.shape == x.shape else y)
        return x

    return layer


def row_convolution(w: Writer, x: Value) -> Value:
    """Over rows, as an image of height 1; by groups, as wav2vec2's positions."""
    batch, rows, width = x.shape
    groups = w.one_of([n for n in (1, 2, 4) if width % n == 0])
    y = images.convolution(w, w.reshape(x, batch, 1, rows, width), width, (1, w.one_of((3, 4, 5))), groups=groups)
    return residual(w, x, activation(w, w.reshape(y, batch, rows, width)))


def with_class_token(w: Writer, x: Value) -> Value:
    """A row ahead of the others, and positions."""
    batch, rows, width = x.shape
    token = w.constant(w.normal(batch, 1, width))
    return w.add(w.concatenate([token, x], 1), w.constant(w.normal(1, rows + 1, width)))


def rows_as_image(mixer: Part) -> Part:
    """A part for images, of a square of rows."""

    def part(w: Writer, x: Value) -> Value:
        batch, rows, width = x.shape
        side = round(rows**0.5)
        if side**2 != rows:
            return feed_forward(w, x)
        return w.reshape(mixer(w, w.reshape(x, batch, side, side, width)), batch, rows, width)

    return part


ROW_PARTS: tuple[Part, ...] = (
    *[encoder_layer(attention)] * 6,
    *[encoder_layer(cross_attention)] * 2,
    *[encoder_layer(channel_attention), encoder_layer(linear_attention)],
    *[encoder_layer(feed_forward), row_convolution, with_class_token],
    *[rows_as_image(images.depthwise), encoder_layer(rows_as_image(window_attention))],
)
IMAGE_PARTS: tuple[Part, ...] = (
    images.plain,
    images.one_axis,
    images.inverted,
    images.dense,
    images.dense,
    images.ghost,
    images.shuffled,
    images.between_planes,
    images.convnext,
    images.normalized,
    images.fused_levels,
    *[encoder_layer(window_attention)] * 2,
)


def network(random: Random) -> Drawn:
    w = Writer(random)
    kind = w.one_of(("rows", "rows", "image", "image", "both"))
    count = w.one_of((1, 1, 1, 2))
    results: list[Value] = []
    if kind == "rows":
        x = w.input(w.normal(w.one_of(BATCHES), w.one_of(ROWS), w.one_of(WIDTHS)))
    else:
        x = _image(w)
        for _ in range(count if kind == "image" else 1):
            x = w.one_of(IMAGE_PARTS)(w, x)
            results.append(x)
    if kind == "both":
        x = _rows_of(w, x)
    if kind != "image":
        for _ in range(count):
            x = w.one_of(ROW_PARTS)(w, x)
            results.append(x)
    outputs = [_head(w, x) if w.chance(0.4) else x]
    outputs += [y for y in results[:-1] if w.chance(0.2)]  # which what comes next reads as well
    return w.finish(list({y.index: y for y in outputs}.values()))


def _image(w: Writer) -> Value:
    """An input, with as many channels as the parts take, or after a convolution of few."""
    side = w.one_of(SIDES)
    sides = (side, side if w.chance(0.7) else w.one_of(SIDES))
    batch, channels = w.one_of(BATCHES), w.one_of(CHANNELS)
    if w.chance(0.5):
        return w.input(w.normal(batch, *sides, channels))
    if w.chance(0.5):
        planes = w.input(w.normal(batch, 3, *sides))
        x = w.transpose(planes, 0, 2, 3, 1)
    else:
        x = w.input(w.normal(batch, *sides, 3))
    return images.convolution(w, x, channels, (3, 3), fused=w.one_of(images.FUSED))


def _rows_of(w: Writer, x: Value) -> Value:
    """The pixels, or patches of them."""
    batch, height, width, channels = x.shape
    patch = w.one_of([n for n in (1, 1, 2) if height % n == 0 and width % n == 0 and height * width >= n * n])
    out = w.one_of(WIDTHS)
    if patch > 1 or height * width > 64:
        patch = max(patch, 2)
        x = images.convolution(w, x, out, (patch, patch), stride=patch)
    else:
        x = images.convolution(w, x, out)
    batch, height, width, channels = x.shape
    if w.chance(0.4):
        planes = w.reshape(w.transpose(x, 0, 3, 1, 2), batch, channels, height * width)
        return w.transpose(planes, 0, 2, 1)
    return w.reshape(x, batch, height * width, channels)


def _head(w: Writer, x: Value) -> Value:
    """A classifier of the mean, or of the first row."""
    if len(x.shape) == 3 and w.chance(0.5):
        first = w.slice(x, 1, 0, 1)
        return linear(w, w.reshape(first, x.shape[0], x.shape[2]), w.one_of((5, 10, 33)))
    axes = tuple(range(1, len(x.shape) - 1))
    mean = w.op("MEAN", [x, w.ints(axes)], lambda x, _: x.mean(axes), keep_dims=False)
    return linear(w, mean, w.one_of((5, 10, 33)))
