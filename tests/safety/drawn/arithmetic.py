"""Steps that compute with floats."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import prod

import numpy as np

from tests.ops import reference, windows
from tests.ops.case import Tensor, largest
from tests.ops.reference import Array
from tests.ops.windows import Window
from tests.safety.drawn.drawing import LARGEST, Drawing, broadcast
from tests.safety.drawn.movements import Step

UNARY: Mapping[str, Callable[[Array], Array]] = {
    "ABS": np.abs,
    "NEG": np.negative,
    "RELU": reference.relu,
    "RELU6": reference.relu6,
    "TANH": np.tanh,
    "LOGISTIC": reference.logistic,
    "SIN": np.sin,
    "SQUARE": np.square,
    "HARD_SWISH": reference.hard_swish,
    "ELU": reference.elu,
    "GELU": reference.gelu,
}
BINARY: Mapping[str, Callable[[Array, Array], Array]] = {
    "ADD": np.add,
    "SUB": np.subtract,
    "MUL": np.multiply,
    "MAXIMUM": np.maximum,
    "MINIMUM": np.minimum,
    "SQUARED_DIFFERENCE": reference.squared_difference,
}
FUSED = ("NONE", "NONE", "RELU", "RELU6")
REDUCTIONS: Mapping[str, Callable[..., Array]] = {
    "MEAN": np.mean,
    "SUM": np.sum,
    "REDUCE_MAX": np.max,
    "REDUCE_MIN": np.min,
}


def unary(d: Drawing) -> Iterable[Tensor]:
    x, code = d.operand(), d.one_of([*UNARY])
    yield d.net.op(code, [x], UNARY[code](x.value))


def binary(d: Drawing) -> Iterable[Tensor]:
    """An operator of two tensors: the other one broadcasts, or has been reshaped to fit."""
    x, code = d.operand(0, 5), d.one_of([*BINARY])
    fit = [y for y in d.tensors if y.shape == x.shape]
    same_size = [y for y in d.tensors if y.value.size == x.value.size]
    if d.chance(0.4):
        y = d.one_of(fit)
    elif d.chance(0.4):
        y = d.one_of(same_size)
        y = y if y.shape == x.shape else d.reshaped(y, x.shape)
    else:
        y = d.other(broadcast(d, x.shape))
    pair = [x, y] if d.chance(0.5) else [y, x]
    activation = d.one_of(FUSED) if code in ("ADD", "SUB", "MUL") else None
    value = BINARY[code](*(t.value for t in pair))
    yield d.net.op(code, pair, value, activation=activation, magnitude=max(largest(t.value) for t in pair))


def reduction(d: Drawing) -> Iterable[Tensor]:
    x, code = d.operand(1, 5), d.one_of([*REDUCTIONS])
    axes = [axis for axis in range(len(x.shape)) if d.chance(0.5)] or [d.random.randrange(len(x.shape))]
    kept = d.chance(0.5)
    value = REDUCTIONS[code](x.value, axis=tuple(axes), keepdims=kept)
    size = prod(x.shape[a] for a in axes)
    yield d.net.op(
        code, [x, d.net.integers(axes)], value, {"keep_dims": kept}, terms=size, magnitude=largest(x.value) * size**0.5
    )


def fully_connected(d: Drawing) -> Iterable[Tensor]:
    x = d.operand(2, 3)
    depth, out = x.shape[-1], d.size()
    weights, bias = d.net.constant(d.net.normal((out, depth), depth**-0.5)), d.net.constant(d.net.normal((out,)))
    value = reference.fully_connected(x.value, weights.value, bias.value, keep_num_dims=len(x.shape) > 2)
    options = {"keep_num_dims": len(x.shape) > 2}
    if x.value.size // depth * out <= LARGEST:
        yield d.net.op(
            "FULLY_CONNECTED", [x, weights, bias], value, options, activation=d.one_of(FUSED), terms=depth,
            version=5 if len(x.shape) > 2 else 1,
        )  # fmt: skip


def _window(d: Drawing, shape: tuple[int, ...]) -> Window:
    height, width = (d.random.randint(1, min(3, size)) for size in shape[1:3])
    return Window((height, width), (d.one_of((1, 1, 2)), d.one_of((1, 1, 2))), padding=d.one_of(("SAME", "VALID")))


def _strides(window: Window) -> dict[str, object]:
    return {"padding": window.padding, "stride_h": window.stride[0], "stride_w": window.stride[1]}


def convolution(d: Drawing) -> Iterable[Tensor]:
    x = d.image()
    out, window, depth = d.size(), _window(d, x.shape), x.shape[3]
    terms = depth * prod(window.kernel)
    weights = d.net.constant(d.net.normal((out, *window.kernel, depth), terms**-0.5))
    bias = d.net.constant(d.net.normal((out,)))
    value = windows.conv_2d(x.value, weights.value, bias.value, window)
    if 0 < value.size <= LARGEST:
        options, activation = _strides(window), d.one_of(FUSED)
        yield d.net.op("CONV_2D", [x, weights, bias], value, options, activation=activation, terms=terms)


def grouped_convolution(d: Drawing) -> Iterable[Tensor]:
    x = d.image()
    groups = d.one_of([n for n in range(1, 5) if x.shape[3] % n == 0])
    out, window, depth = groups * d.random.randint(1, 4), _window(d, x.shape), x.shape[3] // groups
    terms = depth * prod(window.kernel)
    weights = d.net.constant(d.net.normal((out, *window.kernel, depth), terms**-0.5))
    bias = d.net.constant(d.net.normal((out,)))
    value = windows.conv_2d(x.value, weights.value, bias.value, window)
    if 0 < value.size <= LARGEST:
        yield d.net.op("CONV_2D", [x, weights, bias], value, _strides(window), activation="NONE", terms=terms)


def prelu(d: Drawing) -> Iterable[Tensor]:
    x = d.operand(1, 4)
    alpha = d.other(x.shape[-1:])
    yield d.net.op("PRELU", [x, alpha], reference.prelu(x.value, alpha.value))


def depthwise(d: Drawing) -> Iterable[Tensor]:
    x = d.image()
    window, out = _window(d, x.shape), x.shape[3]
    terms = prod(window.kernel)
    weights = d.net.constant(d.net.normal((1, *window.kernel, out), terms**-0.5))
    bias = d.net.constant(d.net.normal((out,)))
    value = windows.depthwise_conv_2d(x.value, weights.value, bias.value, window)
    if value.size:
        options, activation = {**_strides(window), "depth_multiplier": 1}, d.one_of(FUSED)
        yield d.net.op("DEPTHWISE_CONV_2D", [x, weights, bias], value, options, activation=activation, terms=terms)


def pool(d: Drawing) -> Iterable[Tensor]:
    x = d.image()
    window, code = _window(d, x.shape), d.one_of(("AVERAGE_POOL_2D", "MAX_POOL_2D"))
    value = (windows.average_pool_2d if code == "AVERAGE_POOL_2D" else windows.max_pool_2d)(x.value, window)
    options = {**_strides(window), "filter_height": window.kernel[0], "filter_width": window.kernel[1]}
    if value.size:
        yield d.net.op(code, [x], value, options, activation="NONE", terms=prod(window.kernel))


def softmax(d: Drawing) -> Iterable[Tensor]:
    x = d.operand(1, 4)
    yield d.net.op("SOFTMAX", [x], reference.softmax(x.value), {"beta": 1.0})


def product(d: Drawing) -> Iterable[Tensor]:
    """A product of two activations, or of one and a constant; adjoint or not."""
    x = d.operand(2, 4)
    adjoint, out = d.chance(0.4), d.size()
    depth = x.shape[-1]
    y = d.other((*x.shape[:-2], out, depth) if adjoint else (*x.shape[:-2], depth, out))
    value = x.value @ (np.swapaxes(y.value, -1, -2) if adjoint else y.value)
    if value.size <= LARGEST:
        options = {"adj_x": False, "adj_y": adjoint}
        yield d.net.op("BATCH_MATMUL", [x, y], value, options, terms=depth, magnitude=depth**0.5 * largest(x.value))


def product_with_itself(d: Drawing) -> Iterable[Tensor]:
    """Scores of each row with each row, their softmax, and its product with the rows: an attention."""
    x = d.operand(3, 4)
    rows, depth = x.shape[-2:]
    if rows <= 40:
        value = x.value @ np.swapaxes(x.value, -1, -2)
        options = {"adj_x": False, "adj_y": True}
        scores = d.net.op("BATCH_MATMUL", [x, x], value, options, terms=depth, magnitude=largest(value))
        value = scores.value * float(np.float32(0.25))
        scores = d.net.op("MUL", [scores, d.net.constant(np.array(0.25, np.float32))], value, activation="NONE")
        shares = d.net.op("SOFTMAX", [scores], reference.softmax(scores.value), {"beta": 1.0})
        options = {"adj_x": False, "adj_y": False}
        yield d.net.op("BATCH_MATMUL", [shares, x], shares.value @ x.value, options, terms=rows)


def cumulative_sum(d: Drawing) -> Iterable[Tensor]:
    x = d.operand(1, 4)
    axis, exclusive, reverse = d.random.randrange(len(x.shape)), d.chance(0.3), d.chance(0.3)
    value = reference.cumsum(x.value, axis, exclusive, reverse)
    options = {"exclusive": exclusive, "reverse": reverse}
    magnitude = largest(x.value) * x.shape[axis] ** 0.5
    yield d.net.op("CUMSUM", [x, d.net.integers(axis)], value, options, terms=x.shape[axis], magnitude=magnitude)


def resize(d: Drawing) -> Iterable[Tensor]:
    x = d.image()
    size = [int(np.clip(n + d.random.randint(-1, 3), 1, 20)) for n in x.shape[1:3]]
    centers = d.chance(0.5)
    value = reference.resize_bilinear(x.value, (size[0], size[1]), False, centers)
    if value.size <= LARGEST:
        options = {"align_corners": False, "half_pixel_centers": centers}
        yield d.net.op("RESIZE_BILINEAR", [x, d.net.integers(size)], value, options)


def layer_norm(d: Drawing) -> Iterable[Tensor]:
    """A layer norm of the last axis, in the form that converters write."""
    x = d.operand(2, 4)
    net, axis = d.net, d.net.integers([len(x.shape) - 1])
    mean = net.op("MEAN", [x, axis], x.value.mean(-1, keepdims=True), {"keep_dims": True})
    squares = np.square(x.value - mean.value)
    squares = net.op("SQUARED_DIFFERENCE", [x, mean], squares)
    variance = net.op("MEAN", [squares, axis], squares.value.mean(-1, keepdims=True), {"keep_dims": True})
    small = net.constant(np.array(0.01, np.float32))
    variance = net.op("ADD", [variance, small], variance.value + small.value, activation="NONE")
    root = net.op("RSQRT", [variance], reference.rsqrt(variance.value))
    centred = net.op("SUB", [x, mean], x.value - mean.value, activation="NONE")
    y = net.op("MUL", [centred, root], centred.value * root.value, activation="NONE", magnitude=10 * largest(x.value))
    scale, shift = d.factors(x.shape[-1:]), net.constant(net.normal(x.shape[-1:]))
    y = net.op("MUL", [y, scale], y.value * scale.value, activation="NONE")
    yield net.op("ADD", [y, shift], y.value + shift.value, activation="NONE")


ARITHMETIC: tuple[Step, ...] = (
    *[unary] * 3, *[binary] * 4, reduction, fully_connected, convolution, grouped_convolution, depthwise, pool, prelu,
    softmax, product, product_with_itself, cumulative_sum, resize, layer_norm,
)  # fmt: skip
