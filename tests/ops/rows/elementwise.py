"""Rows of the operators that work element by element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.ops import reference
from tests.ops.case import Net, Row, Tensor, largest
from tests.ops.reference import Array
from tests.ops.strategies import ACTIVATION, BOOL, FEATURE_MAP, broadcast_shapes, shapes
from tests.ops.tolerance import ARITHMETIC, EXACT, Tolerance

Operands = Callable[[Net], tuple[Tensor, Tensor]]
Values = Callable[[Net, Sequence[int]], NDArray[np.float32]]


def positive(net: Net, shape: Sequence[int]) -> NDArray[np.float32]:
    return net.rng.uniform(0.25, 4, shape).astype(np.float32)


def eighths(net: Net, shape: Sequence[int]) -> NDArray[np.float32]:
    """Integers, numbers half way between them, and others, none of which fp16 would round across an integer."""
    return np.round(net.normal(shape, 16)) / np.float32(8)


def unary(net: Net, code: str, function: Callable[[Array], Array], values: Values) -> Tensor:
    x = net.input(values(net, net.draw(st.one_of(FEATURE_MAP, shapes()))))
    return net.op(code, [x], function(x.value))


def leaky_relu(net: Net) -> Tensor:
    x = net.input(net.normal(net.draw(FEATURE_MAP)))
    alpha = net.draw(st.sampled_from((0.25, 0.0, 1.5, -0.5)))
    return net.op("LEAKY_RELU", [x], reference.prelu(x.value, np.float64(alpha)), {"alpha": alpha})


def prelu(net: Net) -> Tensor:
    x = net.input(net.normal(net.draw(FEATURE_MAP)))
    # Per channel as converters write it, per channel in rank 1, and one slope for every element of the map.
    shape = net.draw(st.sampled_from(((1, 1, x.shape[3]), x.shape[3:], x.shape[1:])))
    alpha = net.constant(net.normal(shape))
    return net.op("PRELU", [x, alpha], reference.prelu(x.value, alpha.value))


def alike(net: Net) -> tuple[Tensor, Tensor]:
    """Two runtime tensors of one shape, or one tensor given twice."""
    shape = net.draw(st.one_of(FEATURE_MAP, shapes()))
    x = net.input(net.normal(shape))
    return x, x if net.draw(BOOL) else net.input(net.normal(shape))


def broadcast(net: Net, min_rank: int = 1) -> tuple[Tensor, Tensor]:
    """Two runtime tensors, broadcast against each other."""
    first, second = net.draw(broadcast_shapes(min_rank))
    return net.input(net.normal(first)), net.input(net.normal(second))


def with_constant(net: Net) -> tuple[Tensor, Tensor]:
    """A runtime tensor and a constant on either side; either may be broadcast."""
    first, second = net.draw(broadcast_shapes())
    pair = net.input(net.normal(first)), net.constant(net.normal(second))
    return pair[::-1] if net.draw(BOOL) else pair


def quotient(net: Net) -> tuple[Tensor, Tensor]:
    """Operands to divide: the divisor, computed or constant, is nowhere near 0."""
    first, second = net.draw(broadcast_shapes())
    divisor = net.constant if net.draw(BOOL) else net.input
    return net.input(net.normal(first)), divisor(net.factors(second))


def binary(net: Net, code: str, function: Callable[[Array, Array], Array], operands: Operands) -> Tensor:
    x, y = operands(net)
    activation = net.draw(ACTIVATION) if code in ("ADD", "SUB", "MUL", "DIV") else None
    value = function(x.value, y.value)
    # The version that converters write when operands of more than four axes are broadcast.
    version = 3 if code in ("SUB", "MAXIMUM", "MINIMUM") and value.ndim > 4 and x.shape != y.shape else 1
    magnitude = max(largest(x.value), largest(y.value))
    return net.op(code, [x, y], value, activation=activation, version=version, magnitude=magnitude)


_NORMAL, _WIDE = Net.normal, partial(Net.normal, scale=4.0)
_UNARY: tuple[tuple[str, Callable[[Array], Array], Values, Tolerance], ...] = (
    ("RELU", reference.relu, _NORMAL, EXACT),
    ("RELU6", reference.relu6, _WIDE, EXACT),
    ("RELU_N1_TO_1", reference.relu_n1_to_1, _NORMAL, EXACT),
    ("RELU_0_TO_1", reference.relu_0_to_1, _NORMAL, EXACT),
    ("HARD_SWISH", reference.hard_swish, _WIDE, ARITHMETIC),
    ("ELU", reference.elu, _NORMAL, ARITHMETIC),
    ("LOGISTIC", reference.logistic, _WIDE, ARITHMETIC),
    ("TANH", np.tanh, _NORMAL, ARITHMETIC),
    ("EXP", np.exp, _NORMAL, ARITHMETIC),
    ("LOG", np.log, positive, ARITHMETIC),
    ("SQRT", np.sqrt, positive, ARITHMETIC),
    ("RSQRT", reference.rsqrt, positive, ARITHMETIC),
    ("SQUARE", np.square, _NORMAL, ARITHMETIC),
    ("ABS", np.abs, _NORMAL, EXACT),
    ("NEG", np.negative, _NORMAL, EXACT),
    ("SIN", np.sin, _WIDE, ARITHMETIC),
    ("COS", np.cos, _WIDE, ARITHMETIC),
    ("FLOOR", np.floor, eighths, EXACT),
    ("CEIL", np.ceil, eighths, EXACT),
    ("ROUND", np.rint, eighths, EXACT),
    ("SIGN", np.sign, eighths, EXACT),
)
_BINARY = (
    ("ADD", np.add, ARITHMETIC),
    ("SUB", np.subtract, ARITHMETIC),
    ("MUL", np.multiply, ARITHMETIC),
    ("MAXIMUM", np.maximum, EXACT),
    ("MINIMUM", np.minimum, EXACT),
)
_OPERANDS: tuple[tuple[str, Operands], ...] = (
    ("alike", alike),
    ("broadcast", broadcast),
    ("constant", with_constant),
)

ROWS: tuple[Row, ...] = (
    *(
        Row(code.lower(), code, partial(unary, code=code, function=function, values=values), tolerance)
        for code, function, values, tolerance in _UNARY
    ),
    *(
        Row(
            f"{code.lower()}_{kind}",
            code,
            partial(binary, code=code, function=function, operands=pair),
            tolerance,
        )
        for code, function, tolerance in _BINARY
        for kind, pair in _OPERANDS
    ),
    Row("div", "DIV", partial(binary, code="DIV", function=np.divide, operands=quotient)),
    Row(
        "squared_difference",
        "SQUARED_DIFFERENCE",
        partial(binary, code="SQUARED_DIFFERENCE", function=reference.squared_difference, operands=broadcast),
    ),
    Row("prelu", "PRELU", prelu),
    Row("leaky_relu", "LEAKY_RELU", leaky_relu),
)
