"""Rows of 64-bit and unsigned integers over their whole range, and of conversions at the limits of types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.ops import reference
from tests.ops.case import Net, Row, Tensor, exact
from tests.ops.strategies import BOOL, CLAMP, axes, axis, broadcast_shapes, shapes
from tests.ops.tolerance import EXACT

Array = NDArray[Any]
Function = Callable[..., Array]

_SHAPE = shapes(max_rank=4)
_INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64")
_BITS = ("int8", "uint8", "int16", "uint16", "int32", "uint32")
_FLOATS = ("float16", "float32", "float64")


def whole_range(net: Net, shape: Sequence[int], dtype: str) -> Array:
    """Numbers of every size, the limits of this and of other types among them."""
    limits = np.iinfo(dtype)
    bits = net.rng.integers(0, limits.bits, shape).astype(dtype)
    values = net.rng.integers(limits.min, limits.max, shape, dtype, endpoint=True) >> bits
    edges = [n for k in range(7, 64) for p in (2**k, -(2**k)) for n in (p - 1, p, p + 1)]
    inside = np.array([n for n in edges if limits.min <= n <= limits.max], dtype)
    return np.where(net.rng.random(shape) < 0.4, net.rng.choice(inside, shape), values).astype(dtype)


def _operand(net: Net, value: Array) -> Tensor:
    return (net.constant if net.draw(BOOL) else net.input)(value)


def small(net: Net, result: Tensor) -> Tensor:
    """``result``, an output too or not, modulo 1000: what comes next may compute in half precision."""
    if net.draw(BOOL):
        net.output(result)
    if result.value.dtype == bool:
        return result
    wide = result
    if result.value.dtype != np.int64:
        wide = net.op("CAST", [result], result.value.astype(np.int64), _types(result.value.dtype.name, "int64"))
    divisor = net.constant(np.array(1000, np.int64))
    return net.op("FLOOR_MOD", [wide, divisor], wide.value % 1000)


def binary(net: Net, code: str, function: Function, dtypes: Sequence[str]) -> Tensor:
    """Either operand may be constant, and both."""
    dtype = net.draw(st.sampled_from(dtypes))
    first, second = (whole_range(net, shape, dtype) for shape in net.draw(broadcast_shapes(max_rank=4)))
    if code in ("DIV", "FLOOR_DIV", "FLOOR_MOD"):
        second[second == 0] = 3
    x, y = _operand(net, first), _operand(net, second)
    activation = net.draw(CLAMP) if code in ("ADD", "SUB", "MUL") and dtype == "int64" else None
    with np.errstate(over="ignore"):
        return small(net, net.op(code, [x, y], np.asarray(function(x.value, y.value)), activation=activation))


def shifted(x: Array, y: Array) -> Array:
    """By no less than 0 bits, and no more than all but one."""
    return np.asarray(np.right_shift(x, np.clip(y, 0, np.iinfo(x.dtype).bits - 1)))


def negative(net: Net) -> Tensor:
    x = net.input(whole_range(net, net.draw(_SHAPE), "int64"))
    return small(net, net.op("NEG", [x], -x.value))


def truncated(x: Array, y: Array) -> Array:
    """Quotients without a fraction, exact in 64 bits."""
    floor = x // y
    return np.asarray(floor + ((x % y != 0) & ((x < 0) != (y < 0))), x.dtype)


def mean(x: Array, axis: tuple[int, ...], keepdims: bool) -> Array:
    """The sum is computed in 64 bits, and wraps around there."""
    count = np.int64(np.prod([x.shape[a] for a in axis]))
    return truncated(x.astype(np.int64).sum(axis, keepdims=keepdims), np.full((), count)).astype(x.dtype)


def reduction(net: Net, code: str, function: Function, dtypes: Sequence[str]) -> Tensor:
    x = net.input(whole_range(net, net.draw(_SHAPE), net.draw(st.sampled_from(dtypes))))
    over, keep_dims = axes(net, len(x.shape)), net.draw(BOOL)
    with np.errstate(over="ignore"):
        value = np.asarray(function(x.value, axis=tuple(over), keepdims=keep_dims), x.value.dtype)
    return small(net, net.op(code, [x, net.integers(over)], value, {"keep_dims": keep_dims}))


def cumulative_sum(net: Net) -> Tensor:
    x = net.input(whole_range(net, net.draw(_SHAPE), "int64"))
    along, exclusive, reverse = axis(net, len(x.shape)), net.draw(BOOL), net.draw(BOOL)
    value = reference.cumsum(x.value, along, exclusive, reverse)
    options = {"exclusive": exclusive, "reverse": reverse}
    return small(net, net.op("CUMSUM", [x, net.integers(along)], value, options))


def top_k(net: Net) -> Tensor:
    x = net.input(whole_range(net, net.draw(_SHAPE), "int64"))
    k = net.draw(st.integers(1, x.shape[-1]))
    values, indices = net.ops("TOPK_V2", [x, net.integers(k)], reference.top_k(x.value, k))
    net.output(indices)
    return small(net, values)


def pad(net: Net) -> Tensor:
    """PAD with a number that needs all 64 bits."""
    x = net.input(whole_range(net, net.draw(shapes(max_rank=3)), "int64"))
    around = net.rng.integers(0, 3, (len(x.shape), 2))
    fill = net.constant(whole_range(net, (1,), "int64"))
    value = np.pad(x.value, around, constant_values=fill.value[0])
    return small(net, net.op("PADV2", [x, net.integers(around), fill], value))


def gather(net: Net) -> Tensor:
    """Indices of 64 bits, which the device counts in 32."""
    x = net.input(whole_range(net, net.draw(_SHAPE), "int64"))
    along = axis(net, len(x.shape)) % len(x.shape)
    indices = net.input(net.rng.integers(0, x.shape[along], net.draw(st.integers(1, 9))))
    return small(net, net.op("GATHER", [x, indices], np.take(x.value, indices.value, along), {"axis": along}))


def transpose(net: Net) -> Tensor:
    x = net.input(whole_range(net, net.draw(_SHAPE), net.draw(st.sampled_from(("int64", "uint32")))))
    order = net.draw(st.permutations(range(len(x.shape))))
    return small(net, net.op("TRANSPOSE", [x, net.integers(order)], x.value.transpose(order)))


def select(net: Net) -> Tensor:
    shape, dtype = net.draw(_SHAPE), net.draw(st.sampled_from(("int64", "uint32")))
    condition = net.input(net.rng.random(shape) < 0.5)
    x, y = (_operand(net, whole_range(net, shape, dtype)) for _ in range(2))
    return small(net, net.op("SELECT_V2", [condition, x, y], np.where(condition.value, x.value, y.value)))


def _types(source: str, target: str) -> dict[str, object]:
    return {"in_data_type": source, "out_data_type": target}


def converted(x: Array, target: str) -> Array:
    """Integers keep their low bits, floats saturate; NaN becomes the greatest integer."""
    if x.dtype.kind != "f" or target not in _INTEGERS:
        with np.errstate(over="ignore"):
            return x.astype(target)
    limits = np.iinfo(target)
    whole = (limits.max if np.isnan(v) else v for v in x.reshape(-1).tolist())
    bounded = [limits.max if v > limits.max else limits.min if v < limits.min else int(v) for v in whole]
    return np.array(bounded, target).reshape(x.shape)


def _at_limits(net: Net, source: str, target: str) -> Array:
    shape = net.draw(_SHAPE)
    if source == "bool":
        return net.rng.random(shape) < 0.5
    if source in _INTEGERS:
        return whole_range(net, shape, source)
    powers = [s * 2.0**k * f for k in (0, 7, 8, 15, 16, 31, 32, 53, 63, 64) for s in (1, -1) for f in (1, 0.75, 1.5)]
    special = [0.0, -0.5, 0.99, -0.99, 127.5, 255.5, np.inf, -np.inf, *([np.nan] if target in _INTEGERS else [])]
    with np.errstate(over="ignore"):
        return net.rng.choice([*powers, *special, 2.0**31 - 1, 2.0**32 - 1], shape).astype(source)


def cast(net: Net) -> Tensor:
    """Every type to every other one. The model's outputs are integers or float32, as those of all rows."""
    source, target = (net.draw(st.sampled_from((*_INTEGERS, *_FLOATS, "bool"))) for _ in range(2))
    x = net.input(_at_limits(net, source, target))
    value = converted(x.value if source == "bool" else np.asarray(x.value, source), target)
    result = net.op("CAST", [x], exact(value), _types(source, target), dtype=target)
    if target == "float64" and source in _INTEGERS:
        back = converted(value, "int64")
        net.output(net.op("CAST", [result], back, _types(target, "int64")))
    elif target in ("float16", "float64"):
        single = exact(converted(value, "float32"))
        net.output(net.op("CAST", [result], single, _types(target, "float32"), dtype="float32"))
    else:
        net.output(result)
    return net.op("CAST", [result], value != 0, _types(target, "bool"))


_SAME_BITS = (("float32", "int32", "uint32"), ("int16", "uint16"), ("int8", "uint8"))


def bitcast(net: Net) -> Tensor:
    """Any of the types of a size as any other. Bits of floats are those of numbers and of infinities."""
    types = net.draw(st.sampled_from(_SAME_BITS))
    source, target = (net.draw(st.sampled_from(types)) for _ in range(2))
    bits = whole_range(net, net.draw(_SHAPE), types[-1])
    if "float32" in types:
        bits = np.where(bits & 0x7F800000 == 0x7F800000, 0x7F800000, bits).astype(types[-1])
    x = net.input(bits.view(source))
    value = np.asarray(x.value, source).view(target)
    result = net.op("BITCAST", [x], exact(value), dtype=target)
    net.output(result)
    back = net.op("BITCAST", [result], np.asarray(value).view(types[1]), dtype=types[1])
    return small(net, back)


_BOTH = ("int64", "uint32")

# Operators that LiteRT has for these types, and others.
_BINARY: tuple[tuple[str, Function, tuple[str, ...], bool], ...] = (
    ("ADD", np.add, ("int64",), True),
    ("SUB", np.subtract, ("int64",), True),
    ("MUL", np.multiply, ("int64", "uint32", "int32"), True),
    ("MAXIMUM", np.maximum, ("int64",), True),
    ("MINIMUM", np.minimum, ("int64",), True),
    ("FLOOR_MOD", np.mod, ("int64",), True),
    ("EQUAL", np.equal, ("int64",), True),
    ("NOT_EQUAL", np.not_equal, ("int64",), True),
    ("GREATER", np.greater, ("int64",), True),
    ("GREATER_EQUAL", np.greater_equal, ("int64",), True),
    ("LESS", np.less, ("int64",), True),
    ("LESS_EQUAL", np.less_equal, ("int64",), True),
    ("ADD", np.add, ("uint32",), False),
    ("SUB", np.subtract, ("uint32",), False),
    ("MAXIMUM", np.maximum, ("uint32",), False),
    ("MINIMUM", np.minimum, ("uint32",), False),
    ("DIV", truncated, _BOTH, False),
    ("FLOOR_DIV", np.floor_divide, _BOTH, False),
    ("SQUARED_DIFFERENCE", lambda x, y: np.square(x - y), ("int64",), False),
    ("LESS", np.less, ("uint32",), False),
    ("GREATER_EQUAL", np.greater_equal, ("uint32",), False),
)

_REDUCTIONS: tuple[tuple[str, Function, tuple[str, ...]], ...] = (
    ("SUM", np.sum, ("int64",)),
    ("REDUCE_PROD", np.prod, ("int64",)),
    ("REDUCE_MAX", np.max, ("int64",)),
    ("REDUCE_MIN", np.min, ("int64",)),
    ("MEAN", mean, ("int64", "int32")),
)

ROWS: tuple[Row, ...] = (
    *(
        Row(
            f"{code.lower()}_whole_range{'' if litert else '_of_' + '_'.join(dtypes)}",
            code,
            partial(binary, code=code, function=f, dtypes=dtypes),
            EXACT,
            litert,
        )
        for code, f, dtypes, litert in _BINARY
    ),
    *(
        Row(f"{code.lower()}_whole_range", code, partial(reduction, code=code, function=f, dtypes=dtypes), EXACT)
        for code, f, dtypes in _REDUCTIONS
    ),
    Row(
        "bitwise_xor", "BITWISE_XOR", partial(binary, code="BITWISE_XOR", function=np.bitwise_xor, dtypes=_BITS), EXACT
    ),
    Row("right_shift", "RIGHT_SHIFT", partial(binary, code="RIGHT_SHIFT", function=shifted, dtypes=_BITS), EXACT),
    Row("neg_whole_range", "NEG", negative, EXACT),
    Row("cumsum_whole_range", "CUMSUM", cumulative_sum, EXACT),
    Row("top_k_whole_range", "TOPK_V2", top_k, EXACT),
    Row("padv2_whole_range", "PADV2", pad, EXACT),
    Row("gather_whole_range", "GATHER", gather, EXACT),
    Row("transpose_whole_range", "TRANSPOSE", transpose, EXACT),
    Row("select_v2_whole_range", "SELECT_V2", select, EXACT),
    Row("bitcast", "BITCAST", bitcast, EXACT),
    Row("cast_at_limits", "CAST", cast, EXACT),
)
