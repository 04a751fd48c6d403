"""Small models of kernels that work on rows, or on columns, for ``template_cases.py``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tests.kernels.networks import binary, depthwise, layer_norm_of_products, layer_norm_of_quotients, number
from tests.ops import reference
from tests.ops.case import Net, Tensor
from tests.ops.windows import Window


def computed(net: Net, shape: Sequence[int]) -> Tensor:
    """A tensor that kernels read in PHWC4, not as the host gives it."""
    x = net.input(net.normal(shape))
    return net.op("ABS", [x], abs(x.value))


def softmaxes(net: Net) -> Tensor:
    """Softmaxes of pixels one by one and in fours, with channels to spare, and of more than a work-group's
    work-items.
    """
    for shape in ((3, 2, 6), (1, 3, 3, 7), (5, 21), (2, 1025)):
        x = computed(net, shape)
        net.output(net.op("SOFTMAX", [x], reference.softmax(x.value), {"beta": 1.0}))
    return net.op("LOG_SOFTMAX", [x], np.log(reference.softmax(x.value)))


def classifier(net: Net) -> Tensor:
    """A layer of the mean of more slices than a group has work-items: two shares, the second of fewer slices."""
    x = computed(net, (1, 2, 2, 1027))
    mean = net.op("MEAN", [x, net.integers([1, 2])], x.value.mean((1, 2)))
    weights, bias = net.constant(net.normal((10, 1027), 0.03)), net.constant(net.normal((10,)))
    value = reference.fully_connected(mean.value, weights.value, bias.value)
    y = net.op("FULLY_CONNECTED", [mean, weights, bias], value, activation="NONE")
    return net.op("SOFTMAX", [y], reference.softmax(y.value), {"beta": 1.0})


def layer_norms(net: Net) -> Tensor:
    for shape in ((3, 21), (1, 2, 7, 6)):
        net.output(layer_norm_of_quotients(net, computed(net, shape)))
    return layer_norm_of_products(net, computed(net, (2, 530)))


def movements(net: Net) -> Tensor:
    """Reshapes, transposes and slices in a row, of elements, of vec4s and of whole pixels, and of the host's order."""
    x = computed(net, (6, 4, 12))
    for given, heads, order in (
        (x, 3, (2, 1, 0, 3)),
        (x, 4, (2, 0, 1, 3)),
        (net.input(net.normal((6, 4, 8))), 2, (1, 2, 0, 3)),
    ):
        split = given.value.reshape(6, 4, heads, -1)
        y = net.op("RESHAPE", [given, net.integers(split.shape)], split, {"new_shape": list(split.shape)})
        y = net.op("TRANSPOSE", [y, net.integers(order)], split.transpose(order))
        net.output(net.op("ABS", [y], np.abs(y.value)))
    rows = x.value.reshape(24, 12)
    y = net.op("RESHAPE", [x, net.integers(rows.shape)], rows, {"new_shape": list(rows.shape)})
    return net.op("SLICE", [y, net.integers([3, 4]), net.integers([20, 8])], rows[3:23, 4:])


@dataclass(frozen=True)
class Heads:
    """An attention: batch axes, the last of which are heads, and sizes. mask: its shape; none if it is empty."""

    leading: tuple[int, ...]
    rows: int
    keys: int
    depth: int
    value_depth: int
    mask: tuple[int, ...]

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of queries, keys and values."""
        sizes = (self.rows, self.depth), (self.keys, self.depth), (self.keys, self.value_depth)
        return tuple((*self.leading, *size) for size in sizes)


def attention(
    net: Net, heads: Heads, q: Tensor, k: Tensor, v: Tensor, mask: NDArray[np.float32] | None = None
) -> Tensor:
    """mask: of all but ``heads``, whose mask is random; then scores are not scaled."""
    adjoint = {"adj_x": False, "adj_y": True}
    x = net.op("BATCH_MATMUL", [q, k], q.value @ np.swapaxes(k.value, -1, -2), adjoint, terms=heads.depth)
    if mask is None:
        x = binary(net, "MUL", x, number(net, heads.depth**-0.5))
    if mask is not None:
        # Tolerances grow with the largest number: not with a mask.
        x = net.op("ADD", [x, net.constant(mask.astype(np.float32))], x.value, activation="NONE")
    elif heads.mask:
        x = binary(net, "ADD", x, net.input(net.normal(heads.mask, 3)))
    x = net.op("SOFTMAX", [x], reference.softmax(x.value), {"beta": 1.0})
    return net.op("BATCH_MATMUL", [x, v], x.value @ v.value, terms=heads.keys)


def attention_of_projections(net: Net, heads: Heads) -> Tensor:
    """Attention of rows that one layer makes, between that and another layer; the batch is the second axis of the
    input.
    """
    batch, count = heads.leading
    size = count * heads.depth
    x = computed(net, (heads.rows * batch, 8))
    rows = layer(net, x, 3 * size)
    x = reshaped(net, rows, (heads.rows, batch, 3, count, heads.depth))
    value = x.value.transpose(2, 1, 3, 0, 4)
    x = net.op("TRANSPOSE", [x, net.integers([2, 1, 3, 0, 4])], value)
    parts = [
        net.op("STRIDED_SLICE", [x, *map(net.integers, bounds(i, value.shape))], value[i], {"shrink_axis_mask": 1})
        for i in range(3)
    ]
    y = attention(net, heads, *parts)
    y = net.op("TRANSPOSE", [y, net.integers([2, 0, 1, 3])], y.value.transpose(2, 0, 1, 3))
    return layer(net, reshaped(net, y, (heads.rows * batch, size)), 8)


def attention_of_images(net: Net, heads: Heads) -> Tensor:
    """Attention of pixels between two convolutions: heads are channels of what three layers make of the same rows."""
    batch, count = heads.leading
    size, pixels = count * heads.depth, batch * heads.rows
    image = depthwise(net, computed(net, (batch, 1, heads.rows, 8)), Window((1, 3), padding="SAME"), "NONE")
    rows = reshaped(net, image, (pixels, 8))
    parts = []
    for _ in range(3):
        x = reshaped(net, layer(net, rows, size), (batch, heads.rows, count, heads.depth))
        parts.append(net.op("TRANSPOSE", [x, net.integers([0, 2, 1, 3])], x.value.transpose(0, 2, 1, 3)))
    y = attention(net, heads, *parts)
    y = net.op("TRANSPOSE", [y, net.integers([0, 2, 1, 3])], y.value.transpose(0, 2, 1, 3))
    y = reshaped(net, layer(net, reshaped(net, y, (pixels, size)), 8), image.shape)
    return depthwise(net, binary(net, "ADD", y, image), Window((1, 3), padding="SAME"), "NONE")


def bounds(index: int, shape: tuple[int, ...]) -> tuple[list[int], list[int], list[int]]:
    """The begin, end and strides of a slice."""
    return [index, *[0] * (len(shape) - 1)], [index + 1, *shape[1:]], [1] * len(shape)


def layer(net: Net, x: Tensor, out: int) -> Tensor:
    depth = x.shape[-1]
    weights, bias = net.constant(net.normal((out, depth), depth**-0.5)), net.constant(net.normal((out,)))
    value = reference.fully_connected(x.value, weights.value, bias.value)
    return net.op("FULLY_CONNECTED", [x, weights, bias], value, activation="NONE", terms=depth)


def reshaped(net: Net, x: Tensor, shape: tuple[int, ...]) -> Tensor:
    return net.op("RESHAPE", [x, net.integers(shape)], x.value.reshape(shape), {"new_shape": list(shape)})


def attentions(net: Net) -> Tensor:
    """Several blocks of keys, a mask for each row, many rows and few, and heads that are parts of rows."""
    for plain in (Heads((2,), 18, 270, 4, 8, (18, 270)), Heads((2,), 3, 150, 8, 12, (3, 150))):
        net.output(attention(net, plain, *(computed(net, shape) for shape in plain.shapes)))
    net.output(attention_of_images(net, Heads((2, 2), 9, 9, 8, 8, ())))
    return attention_of_projections(net, Heads((2, 2), 18, 18, 4, 4, (2, 1, 1, 18)))


def columns(net: Net) -> Tensor:
    """Images of one column, of which some pixels are left over, under a window that is too large to unroll."""
    x = depthwise(net, computed(net, (2, 37, 1, 6)), Window((27, 1), padding="SAME"), "NONE")
    return depthwise(net, x, Window((3, 1), (2, 1)), "NONE")


CASES: tuple[Callable[[Net], Tensor], ...] = (softmaxes, classifier, layer_norms, movements, attentions, columns)
