"""Rows of NaN, infinities and numbers out of range, where LiteRT's kernels agree on the answer, and of rare options."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.ops import reference, windows
from tests.ops.case import Net, Row, Tensor, exact, largest
from tests.ops.strategies import FEATURE_MAP, UP_TO_RANK_FOUR, shapes
from tests.ops.tolerance import EXACT
from tests.ops.windows import Window

_ANY_SHAPE = st.one_of(FEATURE_MAP, shapes())
_BEYOND = (np.nan, np.inf, -np.inf, 300, -300, 127.9, 128, -128.9, 255.9, 256, -0.9, 40000, -40000, 70000, 3e9, -3e9)


def spiked(net: Net, values: NDArray[np.float32], *spikes: float, share: float = 0.3) -> NDArray[np.float32]:
    """``values`` with some of ``spikes`` among them."""
    chosen = net.rng.choice(spikes, values.shape)
    return np.where(net.rng.random(values.shape) < share, chosen, values).astype(np.float32)


def is_nan(net: Net, x: Tensor) -> Tensor:
    """Where ``x`` is NaN, which no comparison with a reference would let pass."""
    return net.op("NOT_EQUAL", [x, x], np.isnan(x.value))


def cast_saturates(net: Net) -> Tensor:
    """A float out of an integer type's range becomes the nearest number in it, NaN the greatest."""
    target = net.draw(st.sampled_from(("uint8", "int8", "int16", "uint16")))
    x = net.input(spiked(net, net.normal(net.draw(_ANY_SHAPE), 50), *_BEYOND))
    return net.op("CAST", [x], _saturated(x.value, target), {"in_data_type": "float32", "out_data_type": target})


def cast_saturates_at_32_bits(net: Net) -> Tensor:
    x = net.input(spiked(net, net.normal(net.draw(_ANY_SHAPE), 50), *_BEYOND))
    value = _saturated(x.value, "int32")
    y = net.op("CAST", [x], value, {"in_data_type": "float32", "out_data_type": "int32"})
    return net.op("EQUAL", [y, net.constant(value)], np.ones(value.shape, bool))


def _saturated(x: NDArray[Any], dtype: str) -> NDArray[Any]:
    limits = np.iinfo(dtype)
    return np.where(np.isnan(x), limits.max, np.clip(np.nan_to_num(np.trunc(x)), limits.min, limits.max)).astype(dtype)


def sign_of_nan(net: Net) -> Tensor:
    values = spiked(net, net.normal(net.draw(_ANY_SHAPE)), np.nan, np.inf, 0)
    return is_nan(net, net.op("SIGN", [net.input(values)], np.sign(exact(values))))


def l2_normalization_of_nan(net: Net) -> Tensor:
    """One NaN makes all channels of its pixel NaN, and those of no other."""
    values = spiked(net, net.factors(net.draw(shapes(min_rank=2, max_rank=4))), np.nan, share=0.1)
    x = net.input(values)
    return is_nan(net, net.op("L2_NORMALIZATION", [x], reference.l2_normalization(x.value), activation="NONE"))


def top_k_of_nan(net: Net) -> Tensor:
    """NaN comes behind all numbers, minus infinity included."""
    values = net.rng.integers(-9, 10, net.draw(UP_TO_RANK_FOUR)).astype(np.float32)
    x = net.input(spiked(net, values, np.nan, np.nan, np.inf, -np.inf))
    k = net.draw(st.integers(1, x.shape[-1]))
    values_and_indices = reference.top_k(x.value, k)
    values, indices = net.ops("TOPK_V2", [x, net.integers(k)], values_and_indices)
    net.output(is_nan(net, values))
    return indices


def arg_extreme_of_nan(net: Net, code: str) -> Tensor:
    """Any number beats NaN."""
    x = net.input(spiked(net, net.normal(net.draw(UP_TO_RANK_FOUR)), np.nan, np.inf, -np.inf, share=0.6))
    along = net.draw(st.integers(0, len(x.shape) - 1))
    worst = -np.inf if code == "ARG_MAX" else np.inf
    key = np.where(np.isnan(x.value), worst, np.arctan(np.clip(x.value, -1e9, 1e9)))  # NaN comes behind infinities
    value = (np.argmax if code == "ARG_MAX" else np.argmin)(key, along).astype(np.int32)
    if along == len(x.shape) - 1:
        net.litert_differs = "its vectorized kernels may choose the first NaN"
    return net.op(code, [x, net.constant(np.array(along, np.int32))], value, {"output_type": "int32"})


def strided_slice_of_ellipses(net: Net) -> Tensor:
    """TFLite lets each of several ellipses stand for an axis, TensorFlow allows one."""
    x = net.input(net.normal(net.draw(shapes(min_rank=3, max_rank=3))))
    whole = net.draw(st.sampled_from(((0, 1), (0, 2), (1, 2))))
    (axis,) = {0, 1, 2} - {*whole}
    begin = net.draw(st.integers(0, x.shape[axis] - 1))
    starts, ends = (net.integers([value if i == axis else 0 for i in range(3)]) for value in (begin, begin + 1))
    masks = {"ellipsis_mask": sum(1 << i for i in whole)}
    operands = [x, starts, ends, net.integers([1, 1, 1])]
    return net.op("STRIDED_SLICE", operands, np.take(x.value, [begin], axis), masks)


def conv_2d_grouped_of_infinity(net: Net, runtime: bool = False) -> Tensor:
    """An infinity reaches its own group's results; weights are positive, so that no difference of two makes NaN."""
    groups, depth = net.draw(st.sampled_from((2, 3, 4))), net.draw(st.sampled_from((3, 4, 1, 2, 8, 16)))
    outputs = net.draw(st.sampled_from((5, 4, 1, 2, 8, 16))) * groups
    values = net.normal((1, net.draw(st.integers(1, 12)), net.draw(st.integers(1, 12)), groups * depth))
    values[..., depth : 2 * depth] = spiked(net, values[..., depth : 2 * depth], np.inf)
    x, w = net.input(values), Window(net.draw(st.sampled_from(((1, 1), (3, 3)))), padding="SAME")
    filters = np.abs(net.normal((outputs, *w.kernel, depth), 3 / np.sqrt(depth * w.kernel[0] * w.kernel[1])))
    kernel, bias = (net.input if runtime else net.constant)(filters), net.constant(np.zeros(outputs, np.float32))
    value = windows.conv_2d(x.value, kernel.value, bias.value, w)
    options = {"padding": "SAME", "stride_h": 1, "stride_w": 1}
    size = largest(values) * largest(filters)
    operands = [x, kernel, bias]
    return net.op("CONV_2D", operands, value, options, version=6, activation="RELU6", magnitude=size)


@np.errstate(invalid="ignore")  # some libraries of numpy's say that an infinity met a zero in their blocks
def products_of_infinity(net: Net, code: str) -> Tensor:
    """Past its last channel a layer must leave zero, not zero times infinity: the next layer reads that."""
    depth, outputs = net.draw(st.sampled_from((3, 4, 1, 2, 5, 8))), net.draw(st.sampled_from((3, 5, 1, 2, 6)))
    x = net.input(spiked(net, np.abs(net.factors((1, 3, 5, depth))), np.inf, share=0.1))
    filters = np.abs(net.factors((outputs, depth)))
    value, options = x.value @ filters.T, {"padding": "SAME", "stride_h": 1, "stride_w": 1}
    weights, bias = net.constant(filters[:, None, None]), net.constant(np.zeros(outputs, np.float32))
    if code == "BATCH_MATMUL":
        y = net.op(code, [x, net.input(filters.T[None, None])], value)
    elif code == "FULLY_CONNECTED":
        y = net.op(code, [x, net.constant(filters), bias], value, {"keep_num_dims": True}, activation="NONE")
    elif code == "TRANSPOSE_CONV":
        y = net.op(code, [net.integers([1, 3, 5, outputs]), weights, x], value, options)
    else:
        y = net.op(code, [x, weights, bias], value, options, activation="NONE")
    following, bias = net.constant(0.1 * np.abs(net.factors((4, outputs)))), net.constant(np.zeros(4, np.float32))
    value = y.value @ following.value.T
    return net.op("FULLY_CONNECTED", [y, following, bias], value, {"keep_num_dims": True}, activation="RELU6")


ROWS = (
    *(
        Row(f"products_of_infinity_{code.lower()}", code, partial(products_of_infinity, code=code))
        for code in ("CONV_2D", "FULLY_CONNECTED", "BATCH_MATMUL", "TRANSPOSE_CONV")
    ),
    Row("conv_2d_grouped_of_infinity", "CONV_2D", conv_2d_grouped_of_infinity),
    Row("conv_2d_grouped_of_infinity_runtime", "CONV_2D", partial(conv_2d_grouped_of_infinity, runtime=True)),
    Row("cast_saturates", "CAST", cast_saturates, EXACT),
    Row("cast_saturates_at_32_bits", "CAST", cast_saturates_at_32_bits, EXACT),
    Row("sign_of_nan", "SIGN", sign_of_nan, EXACT),
    Row("l2_normalization_of_nan", "L2_NORMALIZATION", l2_normalization_of_nan, EXACT),
    Row("top_k_of_nan", "TOPK_V2", top_k_of_nan, EXACT),
    Row("arg_max_of_nan", "ARG_MAX", partial(arg_extreme_of_nan, code="ARG_MAX"), EXACT),
    Row("arg_min_of_nan", "ARG_MIN", partial(arg_extreme_of_nan, code="ARG_MIN"), EXACT),
    Row("strided_slice_of_ellipses", "STRIDED_SLICE", strided_slice_of_ellipses, EXACT),
)
