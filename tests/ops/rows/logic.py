"""Rows of integers and booleans (arithmetic, comparisons, choices, casts), and of rarer functions of floats."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.ops import reference
from tests.ops.case import Net, Row, Tensor, exact
from tests.ops.rows.elementwise import eighths, positive
from tests.ops.strategies import BOOL, CLAMP, FEATURE_MAP, broadcast_shapes, shapes
from tests.ops.tolerance import EXACT

Function = Callable[..., NDArray[Any]]
_ANY_SHAPE = st.one_of(FEATURE_MAP, shapes())


def numbers(net: Net, shape: Sequence[int], dtype: str = "float32") -> NDArray[Any]:
    """Few different numbers, so that some are equal; all are exact in half precision. Booleans for ``bool``."""
    low, high = (0, 2) if dtype == "bool" else (0 if dtype.startswith("uint") else -9, 10)
    return np.asarray(net.rng.integers(low, high, shape), dtype)


def divisors(net: Net, shape: Sequence[int], dtype: str = "float32") -> NDArray[Any]:
    return np.asarray(net.rng.integers(1, 6, shape) * net.rng.choice([-1, 1], shape), dtype)


def powers(net: Net, shape: Sequence[int], dtype: str) -> NDArray[Any]:
    return np.asarray(net.rng.integers(0, 5, shape), dtype)


def unary_integers(net: Net, code: str, function: Function, dtypes: Sequence[str]) -> Tensor:
    x = net.input(numbers(net, net.draw(_ANY_SHAPE), net.draw(st.sampled_from(dtypes))))
    return net.op(code, [x], function(x.value))


def binary(
    net: Net, code: str, function: Function, dtypes: Sequence[str], second: Callable[..., NDArray[Any]] = numbers
) -> Tensor:
    """Two operands of one type, broadcast; the second may be constant."""
    shape_x, shape_y = net.draw(broadcast_shapes(max_rank=4))
    dtype = net.draw(st.sampled_from(dtypes))
    x = net.input(numbers(net, shape_x, dtype))
    y = (net.constant if net.draw(BOOL) else net.input)(second(net, shape_y, dtype))
    activation = net.draw(CLAMP) if code in ("ADD", "SUB", "MUL", "DIV") and dtype == "int32" else None
    return net.op(code, [x, y], function(x.value, y.value), activation=activation)


def logical_not(net: Net) -> Tensor:
    x = net.input(numbers(net, net.draw(_ANY_SHAPE), "bool"))
    return net.op("LOGICAL_NOT", [x], np.logical_not(x.value))


def select(net: Net) -> Tensor:
    """The condition speaks of elements, of everything, or of whole rows along the first axis."""
    shape = net.draw(shapes(max_rank=4))
    dtype = net.draw(st.sampled_from(("float32", "int32", "bool")))
    x, y = (net.input(numbers(net, shape, dtype)) for _ in range(2))
    condition = net.input(numbers(net, net.draw(st.sampled_from((shape, (), shape[:1]))), "bool"))
    rows = condition.value if condition.shape == shape else condition.value.reshape((-1,) + (1,) * (len(shape) - 1))
    return net.op("SELECT", [condition, x, y], np.where(rows, x.value, y.value))


def select_v2(net: Net) -> Tensor:
    """Condition and both choices are broadcast against each other."""
    shape_x, shape_y = net.draw(broadcast_shapes(max_rank=4))
    full = np.broadcast_shapes(shape_x, shape_y)
    condition_shape = [size if net.draw(BOOL) else 1 for size in full][net.draw(st.integers(0, len(full))) :]
    dtype = net.draw(st.sampled_from(("float32", "int32")))
    condition = net.input(numbers(net, condition_shape, "bool"))
    x = net.input(numbers(net, shape_x, dtype))
    y = (net.constant if net.draw(BOOL) else net.input)(numbers(net, shape_y, dtype))
    return net.op("SELECT_V2", [condition, x, y], np.where(condition.value, x.value, y.value))


_CAST_TYPES = (
    "float32",
    "int32",
    "int64",
    "int16",
    "int8",
    "uint8",
    "bool",
    "uint16",
    "uint32",
    "float16",
    "float64",
)
_FLOATS = ("float32", "float16", "float64")


def cast(net: Net) -> Tensor:
    """Floats lose their fraction, integers the bits that the result has no room for."""
    source, target = net.draw(st.sampled_from(_CAST_TYPES)), net.draw(st.sampled_from(_CAST_TYPES))
    shape = net.draw(_ANY_SHAPE)
    if source in _FLOATS:
        value = np.abs(eighths(net, shape)) if target.startswith("uint") else eighths(net, shape)
    else:
        value = net.rng.integers(0, 2 if source == "bool" else 1000, shape)
    x = net.input(value.astype(source))
    result = net.op("CAST", [x], exact(x.value.astype(target)), _cast_types(source, target), dtype=target)
    if target in ("float16", "float64"):  # rows give float32
        result = net.op("CAST", [result], result.value, _cast_types(target, "float32"))
    return result


def cast_to_half(net: Net) -> Tensor:
    """And back: the numbers are rounded, whatever precision the model runs in."""
    x = net.input(net.normal(net.draw(_ANY_SHAPE)))
    rounded = exact(x.value.astype(np.float16))
    half = net.op("CAST", [x], rounded, _cast_types("float32", "float16"), dtype="float16")
    return net.op("CAST", [half], rounded, _cast_types("float16", "float32"))


def cast_unsigned(net: Net) -> Tensor:
    """A cast of numbers that a signed integer would hold as negative ones; then made small enough for half
    precision.
    """
    value = net.rng.integers(0, 2**32, net.draw(_ANY_SHAPE), np.uint32)
    x = net.op("CAST", [net.input(value)], exact(value.astype(np.float32)), _cast_types("uint32", "float32"))
    factor = net.constant(np.array(2.0**-24, np.float32))
    return net.op("MUL", [x, factor], x.value * factor.value, activation="NONE")


def _cast_types(source: str, target: str) -> dict[str, object]:
    return {"in_data_type": source, "out_data_type": target}


def sign_of_doubles(net: Net) -> Tensor:
    x = net.input(eighths(net, net.draw(_ANY_SHAPE)).astype(np.float64))
    y = net.op("SIGN", [x], np.sign(x.value), dtype="float64")
    return net.op("CAST", [y], y.value, _cast_types("float64", "float32"))


def clamped_nan(net: Net, code: str) -> Tensor:
    """A clamp lets NaN pass."""
    values = net.normal(net.draw(_ANY_SHAPE), 4)
    values[net.rng.random(values.shape) < 0.3] = np.nan
    y = net.op(code, [net.input(values)], values)
    return net.op("NOT_EQUAL", [y, y], np.isnan(values))


def extreme_of_nan(net: Net, code: str, function: Function) -> Tensor:
    """NaN as the second operand is the result, as the first it is not."""
    shape, share = net.draw(_ANY_SHAPE), net.draw(st.sampled_from((0.4, 0.0)))
    x, y = net.normal(shape), net.normal(shape)
    x[net.rng.random(shape) < share] = np.nan
    y[net.rng.random(shape) < share] = np.nan
    if share:
        net.litert_differs = "its vectorized kernels choose the other operand"
    value = np.where(function(x, y), x, y)
    result = net.op(code, [net.input(x), net.input(y)], value)
    return net.op("NOT_EQUAL", [result, result], np.isnan(value))


def gelu(net: Net) -> Tensor:
    x = net.input(net.normal(net.draw(_ANY_SHAPE), 2))
    approximate = net.draw(BOOL)
    function = reference.gelu_approximate if approximate else reference.gelu
    return net.op("GELU", [x], function(x.value), {"approximate": approximate})


def add_n(net: Net) -> Tensor:
    """A sum of more tensors than one kernel can take, too."""
    shape = net.draw(shapes(max_rank=4))
    dtype = net.draw(st.sampled_from(("float32", "int32")))
    terms = [net.input(numbers(net, shape, dtype)) for _ in range(net.draw(st.sampled_from((3, 2, 5, 20))))]
    value = sum((t.value for t in terms), np.zeros(shape, terms[0].value.dtype))
    return net.op("ADD_N", terms, value)


def power(net: Net) -> Tensor:
    first, second = net.draw(broadcast_shapes(max_rank=4))
    x, y = net.input(positive(net, first)), net.input(net.rng.uniform(-2, 2, second).astype(np.float32))
    return net.op("POW", [x, y], np.power(x.value, y.value))


def atan2(net: Net) -> Tensor:
    """In all quadrants; not at the origin, whose angle hangs on the sign of a zero."""
    shape = net.draw(_ANY_SHAPE)
    y, x = net.input(net.normal(shape)), net.input(net.factors(shape))
    return net.op("ATAN2", [y, x], np.arctan2(y.value, x.value))


_BINARY_INTEGERS: tuple[tuple[str, Function, tuple[str, ...], Callable[..., NDArray[Any]]], ...] = (
    ("ADD", np.add, ("int32", "int64"), numbers),
    ("SUB", np.subtract, ("int32", "int64"), numbers),
    ("MUL", np.multiply, ("int32", "int64", "uint32"), numbers),
    ("DIV", reference.truncated_div, ("int32",), divisors),
    ("MAXIMUM", np.maximum, ("int32", "int64"), numbers),
    ("MINIMUM", np.minimum, ("int32", "int64"), numbers),
    ("SQUARED_DIFFERENCE", reference.squared_difference, ("int32",), numbers),
    ("FLOOR_DIV", np.floor_divide, ("float32", "int32"), divisors),
    ("FLOOR_MOD", np.mod, ("float32", "int32", "int64"), divisors),
    ("POW", np.power, ("int32",), powers),
)
COMPARISONS: tuple[tuple[str, Function], ...] = (
    ("EQUAL", np.equal),
    ("NOT_EQUAL", np.not_equal),
    ("GREATER", np.greater),
    ("GREATER_EQUAL", np.greater_equal),
    ("LESS", np.less),
    ("LESS_EQUAL", np.less_equal),
)

ROWS: tuple[Row, ...] = (
    Row("abs_integers", "ABS", partial(unary_integers, code="ABS", function=np.abs, dtypes=("int32", "int16")), EXACT),
    Row(
        "neg_integers",
        "NEG",
        partial(unary_integers, code="NEG", function=np.negative, dtypes=("int32", "int64")),
        EXACT,
    ),
    *(
        Row(
            f"{code.lower()}_integers",
            code,
            partial(binary, code=code, function=f, dtypes=dtypes, second=second),
            EXACT,
        )
        for code, f, dtypes, second in _BINARY_INTEGERS
    ),
    *(
        Row(code.lower(), code, partial(binary, code=code, function=f, dtypes=("float32", "int32", "int64")), EXACT)
        for code, f in COMPARISONS
    ),
    Row(
        "logical_and",
        "LOGICAL_AND",
        partial(binary, code="LOGICAL_AND", function=np.logical_and, dtypes=("bool",)),
        EXACT,
    ),
    Row(
        "logical_or", "LOGICAL_OR", partial(binary, code="LOGICAL_OR", function=np.logical_or, dtypes=("bool",)), EXACT
    ),
    Row("logical_not", "LOGICAL_NOT", logical_not, EXACT),
    Row("select", "SELECT", select, EXACT),
    Row("select_v2", "SELECT_V2", select_v2, EXACT),
    Row("cast", "CAST", cast, EXACT),
    Row("cast_to_half", "CAST", cast_to_half, EXACT),
    Row("cast_unsigned", "CAST", cast_unsigned, EXACT),
    Row("sign_integers", "SIGN", partial(unary_integers, code="SIGN", function=np.sign, dtypes=("int32",)), EXACT),
    Row("sign_of_doubles", "SIGN", sign_of_doubles, EXACT),
    *(
        Row(f"{code.lower()}_of_nan", code, partial(clamped_nan, code=code), EXACT)
        for code in ("RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1")
    ),
    Row("maximum_of_nan", "MAXIMUM", partial(extreme_of_nan, code="MAXIMUM", function=np.greater), EXACT),
    Row("minimum_of_nan", "MINIMUM", partial(extreme_of_nan, code="MINIMUM", function=np.less), EXACT),
    Row("gelu", "GELU", gelu),
    Row("add_n", "ADD_N", add_n),
    Row("pow", "POW", power),
    Row("atan2", "ATAN2", atan2),
)
