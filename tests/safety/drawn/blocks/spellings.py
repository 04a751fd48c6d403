"""Layers that converters write in several ways: linear ones, normalizations, activations, softmax, rotary
embeddings.
"""

from __future__ import annotations

from math import prod

import numpy as np

from tests.ops import reference, windows
from tests.ops.windows import Window
from tests.safety.drawn.blocks.writer import Array, Value, Writer


def linear(w: Writer, x: Value, out: int, activation: str = "NONE") -> Value:
    """A product of the last axis and constant weights."""
    depth, spelling = x.shape[-1], w.one_of(("kept", "kept", "flat", "flattens", "matmul", "pointwise"))
    rows, shape = prod(x.shape[:-1]), (*x.shape[:-1], out)
    weights = w.normal(out, depth, scale=depth**-0.5)
    bias = w.normal(out, scale=0.3) if w.chance(0.8) else None
    if spelling == "matmul":
        adjoint = w.chance(0.3)
        y = w.matmul(x, w.constant(weights if adjoint else np.ascontiguousarray(weights.T)), adjoint_right=adjoint)
        if bias is not None or activation != "NONE":
            y = w.add(y, w.constant(np.zeros(out, np.float32) if bias is None else bias), activation)
        return y
    if spelling == "pointwise":
        image = w.reshape(x, 1, 1, rows, depth)
        return w.reshape(_pointwise(w, image, weights, bias, activation), *shape)
    kept = spelling == "kept" and len(x.shape) > 2
    given = w.reshape(x, rows, depth) if spelling == "flat" and len(x.shape) > 2 else x
    constants = [w.constant(weights), None if bias is None else w.constant(bias)]

    def function(x: Array, weights: Array, bias: Array | float = 0.0) -> Array:
        return reference.fully_connected(x, weights, np.asarray(bias), keep_num_dims=kept)

    y = w.op(
        "FULLY_CONNECTED",
        [given, *constants],
        function,
        activation=activation,
        version=5 if kept else 1,
        keep_num_dims=kept,
    )
    return y if y.shape == shape else w.reshape(y, *shape)


def _pointwise(w: Writer, x: Value, weights: Array, bias: Array | None, activation: str) -> Value:
    out, depth = weights.shape
    filters = w.constant(weights.reshape(out, 1, 1, depth))
    given = w.constant(np.zeros(out, np.float32) if bias is None else bias)
    options = {"padding": "VALID", "stride_h": 1, "stride_w": 1}
    return w.op(
        "CONV_2D",
        [x, filters, given],
        lambda x, f, b: windows.conv_2d(x, f, b, Window((1, 1))),
        activation=activation,
        **options,
    )


def layer_norm(w: Writer, x: Value, *axes: int) -> Value:
    """A LayerNorm, by default of the last axis, in the spellings of TF, litert-torch and onnx2tf."""
    axes = axes or (-1,)
    mean = w.mean(x, *axes)
    centred = w.subtract(x, mean)
    spelling = w.one_of(("difference", "difference", "product", "square", "moments"))
    if spelling == "difference":
        squares = w.op("SQUARED_DIFFERENCE", [x, mean] if w.chance(0.7) else [mean, x], reference.squared_difference)
    elif spelling == "product":
        squares = w.multiply(centred, centred)
    else:
        squares = w.op("SQUARE", [centred if spelling == "square" else x], np.square)
    variance = w.mean(squares, *axes)
    if spelling == "moments":
        variance = w.subtract(variance, w.op("SQUARE", [mean], np.square))
    scale = w.constant(w.factors(x.shape[-1])) if w.chance(0.8) else None
    shift = w.constant(w.normal(x.shape[-1], scale=0.5)) if w.chance(0.8) else None
    if scale is not None and shift is not None and w.chance(0.25):  # as a batch normalization is written
        factor = w.multiply(_inverse_root(w, variance), scale)
        return w.add(w.multiply(x, factor), w.subtract(shift, w.multiply(mean, factor)))
    y = _divided_by_root(w, centred, variance)
    y = y if scale is None else w.multiply(y, scale)
    return y if shift is None else w.add(y, shift)


def rms_norm(w: Writer, x: Value) -> Value:
    squares = w.op("SQUARE", [x], np.square) if w.chance(0.5) else w.multiply(x, x)
    y = _divided_by_root(w, x, w.mean(squares, -1))
    return w.multiply(y, w.constant(w.factors(x.shape[-1]))) if w.chance(0.8) else y


def l2_norm(w: Writer, x: Value) -> Value:
    """To length 1 along the last axis."""
    if w.chance(0.3):
        return w.op("L2_NORMALIZATION", [x], reference.l2_normalization, activation="NONE")
    squares = w.op("SQUARE", [x], np.square) if w.chance(0.5) else w.multiply(x, x)
    axis = w.ints([len(x.shape) - 1])
    length = w.op("SUM", [squares, axis], lambda x, _: x.sum(-1, keepdims=True), keep_dims=True)
    if w.chance(0.5):
        length = w.op("MAXIMUM", [length, w.constant(1e-6)], np.maximum)
        return w.multiply(x, w.op("RSQRT", [length], reference.rsqrt))
    root = w.op("SQRT", [length], np.sqrt)
    return w.divide(x, w.op("MAXIMUM", [root, w.constant(1e-3)], np.maximum))


def group_norm(w: Writer, x: Value) -> Value:
    """A group norm of an image: the pixels of a group of channels together."""
    *leading, channels = x.shape
    groups = w.one_of([n for n in (1, 2, 4) if channels % n == 0])
    grouped = w.reshape(x, leading[0], prod(leading[1:]), groups, channels // groups)
    mean = w.mean(grouped, 1, 3)
    centred = w.subtract(grouped, mean)
    variance = w.mean(w.op("SQUARED_DIFFERENCE", [grouped, mean], reference.squared_difference), 1, 3)
    y = w.reshape(_divided_by_root(w, centred, variance), *x.shape)
    return w.add(w.multiply(y, w.constant(w.factors(channels))), w.constant(w.normal(channels, scale=0.5)))


def norm(w: Writer, x: Value) -> Value:
    """One of those above, most often LayerNorm; over channels ahead of the pixels, too."""
    kind = w.one_of(("layer", "layer", "layer", "rms", "group", "first"))
    if kind == "rms":
        return rms_norm(w, x)
    if kind == "group" and len(x.shape) == 4:
        return group_norm(w, x)
    if kind == "first" and len(x.shape) == 4:  # amid the transposes of a converter, the axis is not the last one
        return w.transpose(_first_axis_norm(w, w.transpose(x, 0, 3, 1, 2)), 0, 2, 3, 1)
    return layer_norm(w, x)


def _first_axis_norm(w: Writer, x: Value) -> Value:
    mean = w.mean(x, 1)
    centred = w.subtract(x, mean)
    y = _divided_by_root(w, centred, w.mean(w.multiply(centred, centred), 1))
    factors, shifts = w.factors(1, x.shape[1], 1, 1), w.normal(1, x.shape[1], 1, 1, scale=0.5)
    return w.add(w.multiply(y, w.constant(factors)), w.constant(shifts))


def _inverse_root(w: Writer, variance: Value) -> Value:
    guarded = w.add(variance, w.constant(w.one_of((1e-2, 1e-3, 1e-5))))
    if w.chance(0.8):
        return w.op("RSQRT", [guarded], reference.rsqrt)
    return w.divide(w.constant(1.0), w.op("SQRT", [guarded], np.sqrt))


def _divided_by_root(w: Writer, x: Value, variance: Value) -> Value:
    if w.chance(0.75):
        return w.multiply(x, _inverse_root(w, variance))
    guarded = w.add(variance, w.constant(w.one_of((1e-2, 1e-3, 1e-5))))
    return w.divide(x, w.op("SQRT", [guarded], np.sqrt))


def layer_scale(w: Writer, x: Value) -> Value:
    return w.multiply(x, w.constant(w.factors(x.shape[-1]) * np.float32(0.3)))


def residual(w: Writer, x: Value, y: Value) -> Value:
    return w.add(x, layer_scale(w, y) if w.chance(0.25) else y)


def activation(w: Writer, x: Value) -> Value:
    name = w.one_of(("gelu", "gelu", "gelu of tanh", "silu", "silu", "hard swish", "relu", "relu6", "prelu", "mish"))
    if name == "gelu":
        return w.op("GELU", [x], reference.gelu, approximate=False)
    if name == "gelu of tanh":
        return gelu_of_tanh(w, x)
    if name == "silu":
        return w.multiply(x, w.op("LOGISTIC", [x], reference.logistic))
    if name == "hard swish":
        if w.chance(0.5):
            return w.op("HARD_SWISH", [x], reference.hard_swish)
        clipped = w.op("RELU6", [w.add(x, w.constant(3.0))], reference.relu6)
        return w.multiply(w.multiply(x, clipped), w.constant(1 / 6))
    if name == "prelu":
        return w.op("PRELU", [x, w.constant(w.factors(x.shape[-1]))], reference.prelu)
    if name == "mish":
        softplus = w.op("LOG", [w.add(w.op("EXP", [x], np.exp), w.constant(1.0))], np.log)
        return w.multiply(x, w.op("TANH", [softplus], np.tanh))
    return w.op(name.upper(), [x], reference.relu if name == "relu" else reference.relu6)


def gelu_of_tanh(w: Writer, x: Value) -> Value:
    """The operator, or its formula."""
    if w.chance(0.3):
        return w.op("GELU", [x], reference.gelu_approximate, approximate=True)
    by_power = w.chance(0.5)
    cube = w.op("POW", [x, w.constant(3.0)], np.power) if by_power else w.multiply(w.multiply(x, x), x)
    inner = w.add(x, w.multiply(cube, w.constant(0.044715)))
    share = w.op("TANH", [w.multiply(inner, w.constant(0.7978845608))], np.tanh)
    half = w.constant(0.5)
    if w.chance(0.5):
        return w.multiply(w.multiply(x, half), w.add(share, w.constant(1.0)))
    return w.multiply(x, w.multiply(w.add(share, w.constant(1.0)), half))


def softmax(w: Writer, x: Value) -> Value:
    """The operator, or its formula."""
    if w.chance(0.8):
        return w.op("SOFTMAX", [x], reference.softmax, beta=1.0)
    axis = w.ints([len(x.shape) - 1])
    top = w.op("REDUCE_MAX", [x, axis], lambda x, _: x.max(-1, keepdims=True), keep_dims=True)
    powers = w.op("EXP", [w.subtract(x, top)], np.exp)
    total = w.op("SUM", [powers, axis], lambda x, _: x.sum(-1, keepdims=True), keep_dims=True)
    return w.divide(powers, total)


def feed_forward(w: Writer, x: Value) -> Value:
    """Two layers and an activation, or a gate beside it."""
    width, hidden = x.shape[-1], x.shape[-1] * w.one_of((1, 2, 3, 4))
    kind = w.one_of(("plain", "plain", "relu", "gates", "one product of both gates"))
    if kind == "plain":
        y = activation(w, linear(w, x, hidden))
    elif kind == "relu":
        y = linear(w, x, hidden, "RELU")
    else:
        if kind == "gates":
            gate, value = linear(w, x, hidden), linear(w, x, hidden)
        else:
            gate, value = w.parts(linear(w, x, 2 * hidden), -1, 2)
        y = w.multiply(activation(w, gate), value)
    return linear(w, y, width)


def rotary(w: Writer, x: Value) -> Value:
    """Rotated pairs of the last axis, by angles of the one before it."""
    *_, rows, depth = x.shape
    angles = np.outer(np.arange(rows), 1.0 / 10 ** (np.arange(depth // 2) / (depth // 2)))
    kind = w.one_of(("halves", "halves", "products", "interleaved"))
    if kind == "halves":
        cosines, sines = (np.tile(f(angles), 2).astype(np.float32) for f in (np.cos, np.sin))
        low, high = w.parts(x, -1, 2)
        turned = w.concatenate([w.op("NEG", [high], np.negative), low], -1)
        return w.add(w.multiply(x, _of(w, cosines, x)), w.multiply(turned, _of(w, sines, x)))
    cosines, sines = (f(angles).astype(np.float32) for f in (np.cos, np.sin))
    if kind == "products":
        low, high = w.parts(x, -1, 2)
        cosine, sine = _of(w, cosines, x), _of(w, sines, x)
    else:
        pairs = w.reshape(x, *x.shape[:-1], depth // 2, 2)
        last = len(x.shape)
        low, high = w.ops("UNPACK", [pairs], lambda x: [x[..., 0], x[..., 1]], num=2, axis=last)
        cosine, sine = _of(w, cosines, x), _of(w, sines, x)
    first = w.subtract(w.multiply(low, cosine), w.multiply(high, sine))
    second = w.add(w.multiply(high, cosine), w.multiply(low, sine))
    if kind == "products":
        return w.concatenate([first, second], -1)
    axis = len(x.shape)
    packed = w.op("PACK", [first, second], lambda x, y: np.stack([x, y], axis), axis=axis, values_count=2)
    return w.reshape(packed, *x.shape)


def _of(w: Writer, table: Array, x: Value) -> Value:
    """A constant that broadcasts to ``x``, with axes of size 1 ahead of its own or without."""
    return w.constant(table.reshape(*[1] * (len(x.shape) - 2), *table.shape) if w.chance(0.6) else table)
