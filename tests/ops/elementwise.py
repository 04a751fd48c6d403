"""Rows of the operators that work element by element."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from hypothesis import strategies as st

from . import reference
from .case import Net, Row, Tensor, largest
from .reference import Array
from .strategies import ACTIVATION, BOOL, FEATURE_MAP, broadcast_shapes, shapes
from .tolerance import ARITHMETIC, EXACT

Operands = Callable[[Net], tuple[Tensor, Tensor]]


def unary(net: Net, code: str, function: Callable[[Array], Array], scale: float) -> Tensor:
    x = net.input(net.normal(net.draw(st.one_of(FEATURE_MAP, shapes())), scale))
    return net.op(code, [x], function(x.value))


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


def binary(net: Net, code: str, function: Callable[[Array, Array], Array], operands: Operands) -> Tensor:
    x, y = operands(net)
    activation = net.draw(ACTIVATION) if code in ("ADD", "SUB", "MUL") else None
    value = function(x.value, y.value)
    # The version that converters write when operands of more than four axes are broadcast.
    version = 3 if code not in ("ADD", "MUL") and value.ndim > 4 and x.shape != y.shape else 1
    magnitude = max(largest(x.value), largest(y.value))
    return net.op(code, [x, y], value, activation=activation, version=version, magnitude=magnitude)


_UNARY = (
    ("RELU", reference.relu, 1, EXACT),
    ("RELU6", reference.relu6, 4, EXACT),
    ("RELU_N1_TO_1", reference.relu_n1_to_1, 1, EXACT),
    ("LOGISTIC", reference.logistic, 3, ARITHMETIC),
    ("EXP", np.exp, 1, ARITHMETIC),
    ("TANH", np.tanh, 2, ARITHMETIC),
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
        Row(code.lower(), code, partial(unary, code=code, function=function, scale=scale), tolerance)
        for code, function, scale, tolerance in _UNARY
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
    Row("prelu", "PRELU", prelu),
)
