"""Small models of kernels that normalize rows, for ``template_cases.py``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.kernels.networks import binary, layer_norm_of_products, layer_norm_of_quotients
from tests.ops import reference
from tests.ops.case import Net, Tensor


def computed(net: Net, shape: Sequence[int]) -> Tensor:
    """A tensor that kernels read in PHWC4, not as the host gives it."""
    x = net.input(net.normal(shape))
    return binary(net, "MUL", x, x)


def softmaxes(net: Net) -> Tensor:
    """Of pixels one by one and in fours, with channels to spare, and of more than a work-group's work-items."""
    for shape in ((3, 2, 6), (1, 3, 3, 7), (5, 21), (2, 1025)):
        x = computed(net, shape)
        net.output(net.op("SOFTMAX", [x], reference.softmax(x.value), {"beta": 1.0}))
    return net.op("LOG_SOFTMAX", [x], np.log(reference.softmax(x.value)))


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
