"""Rows of reductions over any axes, of results along one axis, and of normalizations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.ops import reference, windows
from tests.ops.case import Net, Row, Tensor, largest
from tests.ops.rows.logic import numbers
from tests.ops.rows.spatial import pool_options
from tests.ops.strategies import BOOL, CLAMP, UP_TO_RANK_FOUR, axes, axis, feature_map, shapes, window
from tests.ops.tolerance import ARITHMETIC, EXACT

Values = Callable[[Net, Sequence[int], str], NDArray[Any]]
_FLOATS, _INTEGERS, _NUMBERS = ("float32",), ("int32", "int64"), ("float32", "int32", "int64")


def around_one(net: Net, shape: Sequence[int], dtype: str) -> NDArray[Any]:
    """The sum of many numbers around 0 is too small to tell from the sum of fewer of them."""
    return (net.normal(shape) + 1).astype(dtype)


def one_sided(net: Net, shape: Sequence[int], dtype: str) -> NDArray[Any]:
    """Only positive numbers or only negative ones: a zero that does not belong to them would win or lose."""
    return (net.rng.integers(1, 10, shape) * net.draw(st.sampled_from((1, -1)))).astype(dtype)


def signs(net: Net, shape: Sequence[int], dtype: str) -> NDArray[Any]:
    """Factors of 1 and -1 with a few others, so that even long products are of moderate size."""
    value = net.rng.choice([-1, 1], shape)
    value.reshape(-1)[net.rng.integers(0, value.size, 5)] *= 3
    return value.astype(dtype)


def mostly(truth: bool) -> Values:
    """Booleans of which few, perhaps none, are not ``truth``: they decide REDUCE_ALL and REDUCE_ANY."""
    return lambda net, shape, dtype: (net.rng.random(shape) < 0.02) != truth


def reduction(
    net: Net, code: str, function: Callable[..., NDArray[Any]], dtypes: Sequence[str], values: Values
) -> Tensor:
    x = net.input(values(net, net.draw(UP_TO_RANK_FOUR), net.draw(st.sampled_from(dtypes))))
    over, keep_dims = axes(net, len(x.shape)), net.draw(BOOL)
    result = function(x.value, axis=tuple(over), keepdims=keep_dims)
    terms = int(np.prod([x.shape[a] for a in over]))
    options = {"keep_dims": keep_dims}
    return net.op(
        code, [x, net.integers(over)], result.astype(x.value.dtype), options, terms=terms, magnitude=largest(x.value)
    )


def runtime_axes(net: Net) -> Tensor:
    """The axes are an input: as many as there are, or none."""
    x = net.input(around_one(net, net.draw(st.tuples(*[st.integers(2, 9)] * net.draw(st.integers(1, 4)))), "float32"))
    rank, keep_dims = len(x.shape), net.draw(BOOL)
    over = net.draw(st.permutations(range(rank))) if net.draw(BOOL) else []
    value = x.value.sum(axis=tuple(over), keepdims=keep_dims)
    terms = int(np.prod([x.shape[a] for a in over]))
    listed = net.input(np.array(over, np.int32))
    return net.op("SUM", [x, listed], value, {"keep_dims": keep_dims}, terms=terms, magnitude=largest(x.value))


def sum_of_nothing(net: Net) -> Tensor:
    """Over an axis without elements."""
    shape = list(net.draw(UP_TO_RANK_FOUR))
    along = axis(net, len(shape))
    shape[along] = 0
    x = net.input(np.zeros(shape, np.float32))
    return net.op("SUM", [x, net.integers([along])], x.value.sum(along), {"keep_dims": False})


def arg_extreme(net: Net, code: str, function: Callable[[NDArray[Any], int], NDArray[Any]]) -> Tensor:
    """The place of an extreme of numbers among which there are ties, which the first wins."""
    x = net.input(numbers(net, net.draw(shapes(max_rank=4)), net.draw(st.sampled_from(("float32", "int32")))))
    along, index = axis(net, len(x.shape)), net.draw(st.sampled_from(("int32", "int64")))
    return net.op(
        code, [x, net.integers(along)], np.asarray(function(x.value, along)).astype(index), {"output_type": index}
    )


def arg_max_of_int64(net: Net) -> Tensor:
    """Numbers that no float holds, in more than one vec4 of channels. LiteRT has no kernel."""
    x = net.input(net.normal((3, 5, 7)).round(1).astype(np.int64) << 40)
    return net.op("ARG_MAX", [x, net.integers([2])], np.argmax(x.value, 2), {"output_type": "int64"})


def cumsum(net: Net) -> Tensor:
    x = net.input(numbers(net, net.draw(shapes()), net.draw(st.sampled_from(_NUMBERS))))
    along, exclusive, reverse = axis(net, len(x.shape)), net.draw(BOOL), net.draw(BOOL)
    value = reference.cumsum(x.value, along, exclusive, reverse)
    return net.op("CUMSUM", [x, net.integers(along)], value, {"exclusive": exclusive, "reverse": reverse})


def top_k(net: Net) -> Tensor:
    """Both outputs are the model's; ties are many."""
    x = net.input(numbers(net, net.draw(shapes(max_rank=4)), net.draw(st.sampled_from(_NUMBERS))))
    k = net.draw(st.integers(1, x.shape[-1]))
    values, indices = net.ops("TOPK_V2", [x, net.integers(k)], reference.top_k(x.value, k))
    net.output(values)
    return indices


def log_softmax(net: Net) -> Tensor:
    x = net.input(net.normal(net.draw(UP_TO_RANK_FOUR), 2))
    return net.op("LOG_SOFTMAX", [x], np.log(reference.softmax(x.value)), terms=x.shape[-1])


def l2_normalization(net: Net) -> Tensor:
    x = net.input(net.normal(net.draw(shapes(min_rank=2, max_rank=4))))
    return net.op("L2_NORMALIZATION", [x], reference.l2_normalization(x.value), activation="NONE", terms=x.shape[-1])


def local_response_normalization(net: Net) -> Tensor:
    x = feature_map(net)
    radius = net.draw(st.sampled_from((2, 0, 1, 5)))
    bias, alpha = net.draw(st.sampled_from((1.0, 2.0))), net.draw(st.sampled_from((0.5, 0.0, 1e-3)))
    beta = net.draw(st.sampled_from((0.5, 0.75, 1.0)))
    value = reference.local_response_normalization(x.value, radius, bias, alpha, beta)
    options = {"radius": radius, "bias": bias, "alpha": alpha, "beta": beta}
    return net.op("LOCAL_RESPONSE_NORMALIZATION", [x], value, options, magnitude=largest(x.value))


def l2_pool_2d(net: Net) -> Tensor:
    x = feature_map(net)
    w = window(net, x.shape)
    value = windows.l2_pool_2d(x.value, w)
    terms = w.kernel[0] * w.kernel[1]
    return net.op("L2_POOL_2D", [x], value, pool_options(w), activation=net.draw(CLAMP), terms=terms)


def truncated_mean(x: NDArray[Any], **over: Any) -> NDArray[Any]:
    return np.asarray(np.trunc(x.mean(**over)))


def _row(code: str, function: Callable[..., NDArray[Any]], dtypes: Sequence[str], values: Values, exact: bool) -> Row:
    kind = "" if dtypes != _INTEGERS else "_integers"
    build = partial(reduction, code=code, function=function, dtypes=dtypes, values=values)
    return Row(f"{code.lower()}{kind}", code, build, EXACT if exact else ARITHMETIC)


ROWS: tuple[Row, ...] = (
    _row("SUM", np.sum, _FLOATS, around_one, False),
    _row("SUM", np.sum, _INTEGERS, numbers, True),
    _row("MEAN", truncated_mean, _INTEGERS, numbers, True),
    _row("REDUCE_MAX", np.max, _NUMBERS, one_sided, True),
    _row("REDUCE_MIN", np.min, _NUMBERS, one_sided, True),
    _row("REDUCE_PROD", np.prod, _NUMBERS, signs, False),
    _row("REDUCE_ANY", np.any, ("bool",), mostly(False), True),
    _row("REDUCE_ALL", np.all, ("bool",), mostly(True), True),
    Row("sum_runtime_axes", "SUM", runtime_axes),
    Row("sum_of_nothing", "SUM", sum_of_nothing, EXACT),
    Row("arg_max", "ARG_MAX", partial(arg_extreme, code="ARG_MAX", function=np.argmax), EXACT),
    Row("arg_max_of_int64", "ARG_MAX", arg_max_of_int64, EXACT, litert=False),
    Row("arg_min", "ARG_MIN", partial(arg_extreme, code="ARG_MIN", function=np.argmin), EXACT),
    Row("cumsum", "CUMSUM", cumsum),
    Row("topk_v2", "TOPK_V2", top_k, EXACT),
    Row("log_softmax", "LOG_SOFTMAX", log_softmax),
    Row("l2_normalization", "L2_NORMALIZATION", l2_normalization),
    Row("local_response_normalization", "LOCAL_RESPONSE_NORMALIZATION", local_response_normalization),
    Row("l2_pool_2d", "L2_POOL_2D", l2_pool_2d),
)
