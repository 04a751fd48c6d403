"""Attention in several spellings, alone and in windows of an image."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.safety.drawn.blocks.spellings import l2_norm, linear, rms_norm, rotary, softmax
from tests.safety.drawn.blocks.writer import Value, Writer

MASKED = (-1e9, -1e4, -100.0)


def attention(w: Writer, x: Value) -> Value:
    """Self-attention of [batch, rows, width]."""
    *_, width = x.shape
    heads = w.one_of([n for n in (1, 2, 3, 4, 6, 8) if width % n == 0 and width // n >= 4])
    depth = width // heads
    if heads % 2 == 0 and w.chance(0.06):
        return _groups_as_rows(w, x, heads, depth)
    if heads % 2 == 0 and w.chance(0.2):
        q, k, v = _grouped(w, x, heads, depth)
    elif w.chance(0.5):
        q, k, v = _joint(w, x, heads, depth)
    else:
        q, k, v = (_heads(w, linear(w, x, width), heads) for _ in range(3))
    if depth % 2 == 0 and w.chance(0.25):
        q, k = rotary(w, q), rotary(w, k)
    elif w.chance(0.1):
        q, k = rms_norm(w, q), rms_norm(w, k)
    return linear(w, _without_heads(w, _weighted(w, q, k, v)), width)


def cross_attention(w: Writer, x: Value) -> Value:
    """Attention of the rows of ``x`` to another sequence, or to keys and values that are inputs, as a decoder keeps
    them.
    """
    batch, _, width = x.shape
    heads = w.one_of([n for n in (1, 2, 4) if width % n == 0 and width // n >= 4])
    depth, keys = width // heads, w.one_of((1, 3, 7, 16, 33, 64))
    if w.chance(0.3):
        x = w.slice(x, 1, w.random.randrange(x.shape[1]), 1)
    q = _heads(w, linear(w, x, width), heads)
    if w.chance(0.5):
        k, v = (w.input(w.normal(batch, heads, keys, depth)) for _ in range(2))
    else:
        other = w.input(w.normal(batch, keys, width))
        k, v = (_heads(w, linear(w, other, width), heads) for _ in range(2))
    return linear(w, _without_heads(w, _weighted(w, q, k, v)), width)


def _heads(w: Writer, x: Value, heads: int) -> Value:
    """[batch, rows, width] -> [batch, heads, rows, depth]."""
    batch, rows, width = x.shape
    return w.transpose(w.reshape(x, batch, rows, heads, width // heads), 0, 2, 1, 3)


def _without_heads(w: Writer, x: Value) -> Value:
    batch, heads, rows, depth = x.shape
    return w.reshape(w.transpose(x, 0, 2, 1, 3), batch, rows, heads * depth)


def _joint(w: Writer, x: Value, heads: int, depth: int) -> tuple[Value, Value, Value]:
    """One product for queries, keys and values, which is then cut."""
    batch, rows, width = x.shape
    joint = linear(w, x, 3 * width)
    spelling = w.one_of(("cut first", "moved first", "moved first", "by head"))
    if spelling == "cut first":
        q, k, v = (_heads(w, part, heads) for part in w.parts(joint, -1, 3))
        return q, k, v
    if spelling == "by head":  # the three of a head lie side by side
        moved = w.transpose(w.reshape(joint, batch, rows, heads, 3 * depth), 0, 2, 1, 3)
        q, k, v = w.parts(moved, -1, 3)
        return q, k, v
    moved = w.transpose(w.reshape(joint, batch, rows, 3, heads, depth), 2, 0, 3, 1, 4)
    if w.chance(0.5):
        q, k, v = w.ops("UNPACK", [moved], lambda x: [*x], num=3, axis=0)
        return q, k, v
    q, k, v = (_shrunk(w, moved, n) for n in range(3))
    return q, k, v


def _shrunk(w: Writer, x: Value, n: int) -> Value:
    """One of the first axis: by a STRIDED_SLICE that drops the axis, or by a slice and a RESHAPE."""
    if w.chance(0.5):
        return w.reshape(w.slice(x, 0, n, 1), *x.shape[1:])
    rank = len(x.shape)
    bounds = ([n, *[0] * (rank - 1)], [n + 1, *x.shape[1:]], [1] * rank)
    return w.op("STRIDED_SLICE", [x, *map(w.ints, bounds)], lambda x, *_: x[n], shrink_axis_mask=1)


def _grouped(w: Writer, x: Value, heads: int, depth: int) -> tuple[Value, Value, Value]:
    """Heads that share keys and values: these are repeated."""
    groups = w.one_of([n for n in (1, 2) if heads % n == 0])
    q = _heads(w, linear(w, x, heads * depth), heads)
    k, v = (_heads(w, linear(w, x, groups * depth), groups) for _ in range(2))
    return q, _repeated(w, k, heads // groups), _repeated(w, v, heads // groups)


def _groups_as_rows(w: Writer, x: Value, heads: int, depth: int) -> Value:
    """Heads that share keys and values, as more rows of one head."""
    batch, rows, width = x.shape
    groups = w.one_of((1, 2))
    times = heads // groups
    apart = w.transpose(w.reshape(linear(w, x, width), batch, rows, groups, times, depth), 0, 2, 3, 1, 4)
    q = w.reshape(apart, batch, groups, times * rows, depth)
    k, v = (_heads(w, linear(w, x, groups * depth), groups) for _ in range(2))
    y = w.reshape(_weighted(w, q, k, v, lambda scores: scores), batch, groups, times, rows, depth)
    return linear(w, w.reshape(w.transpose(y, 0, 3, 1, 2, 4), batch, rows, width), width)


def _repeated(w: Writer, x: Value, times: int) -> Value:
    batch, groups, rows, depth = x.shape
    if groups == 1 and w.chance(0.3):
        return w.concatenate([x] * times, 1)
    apart = w.reshape(x, batch, groups, 1, rows, depth)
    shape = (batch, groups, times, rows, depth)
    if w.chance(0.5):
        y = w.op("BROADCAST_TO", [apart, w.ints(shape)], lambda x, _: np.broadcast_to(x, shape).copy(), version=2)
    else:
        counts = (1, 1, times, 1, 1)
        y = w.op("TILE", [apart, w.ints(counts)], lambda x, _: np.tile(x, counts))
    return w.reshape(y, batch, groups * times, rows, depth)


def _weighted(w: Writer, q: Value, k: Value, v: Value, masked: Callable[[Value], Value] | None = None) -> Value:
    """softmax(q k^T) v of [batch, heads, rows, depth]; one axis for batch and heads in some spellings.

    masked: what is done to scores whose axes are apart; by default a mask is drawn.
    """
    batch, heads, rows, depth = q.shape
    folded = masked is None and w.chance(0.3)
    if folded:
        q, k, v = (w.reshape(x, batch * heads, *x.shape[2:]) for x in (q, k, v))
    scaled = w.one_of(("queries", "scores", "scores", "divided", "both", "none"))
    if scaled == "queries":
        q = w.multiply(q, w.constant(depth**-0.5))
    elif scaled == "both":
        q, k = (w.multiply(x, w.constant(depth**-0.25)) for x in (q, k))
    scores = _scores(w, q, k)
    if scaled == "scores":
        scores = w.multiply(scores, w.constant(depth**-0.5))
    elif scaled == "divided":
        scores = w.divide(scores, w.constant(depth**0.5))
    if folded and w.chance(0.5):
        scores = w.reshape(scores, batch, heads, *scores.shape[1:])
    scores = _masked(w, scores, batch, heads) if masked is None else masked(scores)
    shares = softmax(w, scores)
    if folded and len(shares.shape) == 4:
        shares = w.reshape(shares, batch * heads, *shares.shape[2:])
    y = w.matmul(shares, _swapped(w, v), adjoint_right=True) if w.chance(0.2) else w.matmul(shares, v)
    return w.reshape(y, batch, heads, rows, v.shape[-1]) if folded else y


def _swapped(w: Writer, x: Value) -> Value:
    rank = len(x.shape)
    return w.transpose(x, *range(rank - 2), rank - 1, rank - 2)


def _scores(w: Writer, q: Value, k: Value) -> Value:
    spelling = w.one_of(("right", "right", "transposed", "transposed", "left", "keys first"))
    if spelling == "right":
        return w.matmul(q, k, adjoint_right=True)
    if spelling == "transposed":
        return w.matmul(q, _swapped(w, k))
    if spelling == "left":
        return w.matmul(_swapped(w, q), _swapped(w, k), adjoint_left=True)
    return _swapped(w, w.matmul(k, q, adjoint_right=True))


def _masked(w: Writer, scores: Value, batch: int, heads: int) -> Value:
    """Scores of one axis of heads or of two, with a mask, a bias of positions, or both."""
    *_, rows, keys = scores.shape
    apart = len(scores.shape) == 4
    kind = w.one_of(("none", "none", "causal", "padding", "bias", "bias of a table", "both", "selected"))
    if kind in ("bias", "bias of a table", "both"):
        scores = w.add(scores, _position_bias(w, heads if apart else batch * heads, rows, keys, kind))
    if kind in ("causal", "both"):
        mask = np.where(np.arange(keys) <= np.arange(rows)[:, None], 0.0, w.one_of(MASKED)).astype(np.float32)
        ones = w.random.randint(0, len(scores.shape) - 2)
        scores = w.add(scores, w.constant(mask.reshape(*[1] * ones, rows, keys)))
    if kind == "padding":
        kept = w.random.randint(1, keys)
        mask = np.where(np.arange(keys) < kept, 0.0, w.one_of(MASKED)).astype(np.float32)
        mask = np.broadcast_to(mask, (batch if apart else 1, *[1] * (len(scores.shape) - 2), keys)).copy()
        scores = w.add(scores, w.input(mask))
    if kind == "selected":
        mask = np.arange(keys) <= np.arange(rows)[:, None]
        fill = w.constant(w.one_of(MASKED))
        scores = w.op("SELECT_V2", [w.constant(mask), scores, fill], lambda m, x, y: np.where(m, x, y))
    return scores


def _position_bias(w: Writer, heads: int, rows: int, keys: int, kind: str) -> Value:
    if kind != "bias of a table" or rows * keys > 1024:
        return w.constant(w.normal(heads, rows, keys))
    table = w.constant(w.normal(rows + keys - 1, heads))
    index = (np.arange(rows)[:, None] - np.arange(keys) + keys - 1).astype(np.int32).reshape(-1)
    found = w.op("GATHER", [table, w.constant(index)], lambda x, i: x[i], axis=0)
    return w.transpose(w.reshape(found, rows, keys, heads), 2, 0, 1)


def channel_attention(w: Writer, x: Value) -> Value:
    """XCiT's: the scores are of channels, between rows of length 1."""
    batch, rows, width = x.shape
    heads = w.one_of([n for n in (1, 2, 4) if width % n == 0 and width // n >= 4])
    depth = width // heads
    joint = w.reshape(linear(w, x, 3 * width), batch, rows, 3, heads, depth)
    moved = w.transpose(joint, 2, 0, 3, 4, 1)
    q, k, v = (_shrunk(w, moved, n) for n in range(3))
    scores = w.matmul(l2_norm(w, q), l2_norm(w, k), adjoint_right=True)
    scores = w.multiply(scores, w.constant(w.factors(heads, 1, 1)))
    y = w.matmul(softmax(w, scores), v)
    return linear(w, w.reshape(w.transpose(y, 0, 3, 1, 2), batch, rows, width), width)


def linear_attention(w: Writer, x: Value) -> Value:
    """CoaT's: the softmax of the keys is over the rows, and joins the values first."""
    width = x.shape[-1]
    heads = w.one_of([n for n in (1, 2, 4) if width % n == 0 and width // n >= 4])
    q, k, v = _joint(w, x, heads, width // heads)
    shares = softmax(w, _swapped(w, k))  # [batch, heads, depth, rows]
    context = w.matmul(shares, v)
    y = w.multiply(w.matmul(q, context), w.constant((width // heads) ** -0.5))
    return linear(w, _without_heads(w, y), width)


def window_attention(w: Writer, x: Value) -> Value:
    """Swin's, of an image [batch, height, width, channels]: windows, shifted ones among them, with a bias."""
    batch, height, width, channels = x.shape
    side = w.one_of([n for n in (2, 4, 7, 8) if height % n == 0 and width % n == 0] or [0])
    if not side:
        side = 4
        around = [(0, 0), (0, -height % side), (0, -width % side), (0, 0)]
        padded = w.op("PAD", [x, w.ints(around)], lambda x, _: np.pad(x, around))
        y = window_attention(w, padded)
        return w.slice(w.slice(y, 1, 0, height), 2, 0, width)
    shift = side // 2 if w.chance(0.5) else 0
    if shift:
        x = _rolled(w, _rolled(w, x, 1, shift), 2, shift)
    rows, columns = height // side, width // side
    apart = w.reshape(x, batch, rows, side, columns, side, channels)
    windows = w.reshape(w.transpose(apart, 0, 1, 3, 2, 4, 5), batch * rows * columns, side * side, channels)
    heads = w.one_of([n for n in (1, 2, 4) if channels % n == 0 and channels // n >= 4])
    q, k, v = _joint(w, windows, heads, channels // heads)
    bias, masks = w.constant(w.normal(heads, side * side, side * side)), rows * columns

    def masked(scores: Value) -> Value:
        scores = w.add(scores, bias)
        return _with_mask_of_windows(w, scores, masks) if shift else scores

    y = linear(w, _without_heads(w, _weighted(w, q, k, v, masked)), channels)
    apart = w.reshape(y, batch, rows, columns, side, side, channels)
    image = w.reshape(w.transpose(apart, 0, 1, 3, 2, 4, 5), batch, height, width, channels)
    return _rolled(w, _rolled(w, image, 1, height - shift), 2, width - shift) if shift else image


def _with_mask_of_windows(w: Writer, scores: Value, masks: int) -> Value:
    """Each window of an image has a mask of its own."""
    windows, heads, area, _ = scores.shape
    hidden = w.rng.integers(0, 2, (masks, area))  # parts of the image that do not see each other
    mask = np.where(hidden[:, :, None] == hidden[:, None], 0.0, -100.0).astype(np.float32)
    apart = w.reshape(scores, windows // masks, masks, heads, area, area)
    shape = (masks, 1, area, area) if w.chance(0.5) else (1, masks, 1, area, area)
    return w.reshape(w.add(apart, w.constant(mask.reshape(shape))), *scores.shape)


def _rolled(w: Writer, x: Value, axis: int, shift: int) -> Value:
    """The first ``shift`` of an axis come last."""
    size = x.shape[axis]
    return w.concatenate([w.slice(x, axis, shift, size - shift), w.slice(x, axis, 0, shift)], axis)
