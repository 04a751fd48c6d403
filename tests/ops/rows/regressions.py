"""Rows named after faults of the TensorFlow Lite GPU delegate, which answers them wrongly or not at all."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
from hypothesis import strategies as st

from tests.ops import reference
from tests.ops.case import Net, Row, Tensor
from tests.ops.rows.convolutions import convolve, transpose_conv
from tests.ops.rows.elementwise import binary, broadcast
from tests.ops.rows.movement import concatenate, concatenation, pad, pad_by, strided_slice
from tests.ops.rows.spatial import average_pool, max_pool, mean, mean_over, softmax
from tests.ops.strategies import CHANNELS, FEATURE_MAP, axes, feature_map, shapes, window
from tests.ops.tolerance import EXACT
from tests.ops.windows import Window


def pad_then_average_pool_excludes_padding(net: Net) -> Tensor:
    """The zeros of a PAD count in the average, unlike those of the pool's own padding."""
    x = _padded(net, feature_map(net))
    return average_pool(net, x, window(net, x.shape))


def pad_then_max_pool_of_negatives(net: Net) -> Tensor:
    """The zeros of a PAD win over negative pixels."""
    x = _padded(net, net.input(-1 - np.abs(net.normal(net.draw(FEATURE_MAP)))))
    return max_pool(net, x, window(net, x.shape))


def max_pool_below_minus_10000(net: Net) -> Tensor:
    """A maximum that starts at some large negative number is wrong below it."""
    x = net.input(np.float32(-11500) + net.normal(net.draw(FEATURE_MAP), 100))
    return max_pool(net, x, window(net, x.shape))


def softmax_of_a_masked_row(net: Net) -> Tensor:
    """A mask lowers all scores of a row alike, by more than half precision holds: each is as likely as the others."""
    x = net.input(net.normal(net.draw(FEATURE_MAP)))
    least = net.constant(np.full(x.shape, np.finfo(np.float32).min, np.float32))
    masked = net.op("ADD", [x, least], x.value + least.value, activation="NONE")
    masked = replace(masked, value=np.zeros(x.shape))  # next to the mask, the scores are lost in any precision
    return net.op("SOFTMAX", [masked], np.full(x.shape, 1 / x.shape[-1]), {"beta": 1.0})


def max_pool_of_minus_infinity(net: Net) -> Tensor:
    """A window that holds nothing else gives minus infinity, not the lowest finite number."""
    values = net.normal(net.draw(FEATURE_MAP))
    values[net.rng.random(values.shape) < 0.8] = -np.inf
    x = net.input(values)
    y = max_pool(net, x, window(net, x.shape))
    if not np.isfinite(y.value).all():
        net.litert_differs = "its maximum may start at the lowest finite number"
    return y


def max_pool_of_what_minus_infinity_pads(net: Net) -> Tensor:
    """Frameworks export the padding of a pooling so; it joins the pooling where each window sees the image."""
    x = net.input(net.normal(net.draw(FEATURE_MAP)))
    around = [(0, 0), (1, 1), (0, 1), (0, 0)]
    value = np.pad(x.value, around, constant_values=-np.inf)
    fill = net.constant(np.array(-np.inf, np.float32))
    padded = net.op("PADV2", [x, net.integers(around), fill], value)
    y = max_pool(net, padded, window(net, padded.shape))
    if not np.isfinite(y.value).all():
        net.litert_differs = "its maximum may start at the lowest finite number"
    return y


def transpose_conv_fused_activation(net: Net) -> Tensor:
    return transpose_conv(net, activation=st.sampled_from(("RELU6", "RELU", "RELU_N1_TO_1", "TANH")))


def same_tensor_twice_in_sub(net: Net) -> Tensor:
    return binary(net, "SUB", np.subtract, lambda net: (feature_map(net),) * 2)


def negative_axes(net: Net) -> Tensor:
    """CONCATENATION and MEAN with their axes counted from the back."""
    shape = net.draw(shapes(min_rank=2, max_rank=4))
    x = concatenate(net, shape, net.draw(st.integers(-len(shape), -1)))
    return mean_over(net, x, [axis % len(shape) - len(shape) for axis in axes(net, len(shape))])


def intermediate_that_is_also_an_output(net: Net) -> Tensor:
    """Fusing the second operator into the first must not lose what the caller asked for."""
    x = convolve(net, feature_map(net), Window((1, 1)))
    net.output(x)
    return net.op("LOGISTIC", [x], reference.logistic(x.value))


def _padded(net: Net, x: Tensor) -> Tensor:
    margin = st.tuples(st.integers(1, 2), st.integers(0, 2))
    return pad_by(net, x, [(0, 0), net.draw(margin), net.draw(margin), (0, 0)])


_RANK_FIVE = shapes(min_rank=5)

ROWS = (
    Row("pad_then_average_pool_excludes_padding", "AVERAGE_POOL_2D", pad_then_average_pool_excludes_padding),
    Row("pad_then_max_pool_of_negatives", "MAX_POOL_2D", pad_then_max_pool_of_negatives, EXACT),
    Row("max_pool_below_minus_10000", "MAX_POOL_2D", max_pool_below_minus_10000, EXACT),
    Row("softmax_of_a_masked_row", "SOFTMAX", softmax_of_a_masked_row),
    Row("max_pool_of_what_minus_infinity_pads", "MAX_POOL_2D", max_pool_of_what_minus_infinity_pads, EXACT),
    Row("max_pool_of_minus_infinity", "MAX_POOL_2D", max_pool_of_minus_infinity, EXACT),
    Row("transpose_conv_fused_activation", "TRANSPOSE_CONV", transpose_conv_fused_activation),
    Row("softmax_one_dimensional", "SOFTMAX", partial(softmax, shape=st.tuples(CHANNELS))),
    Row("softmax_beta", "SOFTMAX", partial(softmax, betas=st.sampled_from((0.5, 2.5, 0.1)))),
    Row("strided_slice_masks", "STRIDED_SLICE", partial(strided_slice, masks=st.just(True)), EXACT),
    Row("same_tensor_twice_in_sub", "SUB", same_tensor_twice_in_sub),
    Row("negative_axes", "MEAN", negative_axes),
    Row(
        "rank_five_add",
        "ADD",
        partial(binary, code="ADD", function=np.add, operands=partial(broadcast, min_rank=5)),
    ),
    Row("rank_five_concatenation", "CONCATENATION", partial(concatenation, shape=_RANK_FIVE), EXACT),
    Row("rank_five_mean", "MEAN", partial(mean, shape=_RANK_FIVE)),
    Row("rank_five_pad", "PAD", partial(pad, shape=_RANK_FIVE), EXACT),
    Row("rank_five_softmax", "SOFTMAX", partial(softmax, shape=_RANK_FIVE)),
    Row(
        "rank_five_strided_slice",
        "STRIDED_SLICE",
        partial(strided_slice, shape=_RANK_FIVE, masks=st.just(False)),
        EXACT,
    ),
    Row("intermediate_that_is_also_an_output", "CONV_2D", intermediate_that_is_also_an_output),
)
