"""The elementwise functions that epilogue ops apply.

Each has a numpy definition here, for constants, and a macro of the same name for devices in
``templates/access/epilogue_ops.cl.j2``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import erf
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

Result = Literal["first", "second", "float", "int"]


@dataclass(frozen=True)
class EpilogueFunction:
    """An elementwise function.

    evaluate: ``evaluate(*operands, *parameters)`` in numpy.
    keeps_zero: the result is zero wherever all operands are.
    result: the result's type: that of the first or second operand, or a fixed one. Truth values are the ints 0 and 1.
    """

    evaluate: Callable[..., Array]
    keeps_zero: bool
    result: Result = "first"


def _sigmoid(x: Array) -> Array:
    result: Array = 1 / (1 + np.exp(-x))
    return result


def half_away(x: Array) -> Array:
    """Round to nearest, halves away from zero, as OpenCL's ``round`` does."""
    rounded: Array = np.trunc(x + np.copysign(0.5, x))
    return rounded


def _quantize(x: Array, scale: float, zero: float, low: float, high: float) -> Array:
    q: Array = np.clip(half_away(x / scale) + zero, low, high)
    return q


def _simulate(x: Array, scale: float, zero: float, low: float, high: float) -> Array:
    """The nearest value that a quantized tensor can hold: quantize and dequantize."""
    return scale * (_quantize(x, scale, zero, low, high) - zero)


def _elu(x: Array) -> Array:
    return np.where(x < 0, np.expm1(np.minimum(x, 0)), x)


def _prelu(x: Array, alpha: Array) -> Array:
    return np.where(x < 0, alpha * x, x)


def _select(condition: Array, x: Array, y: Array) -> Array:
    return np.where(condition != 0, x, y)


def _gelu(x: Array) -> Array:
    result: Array = 0.5 * x * (1 + np.vectorize(erf, otypes=[float])(x / np.sqrt(2)))
    return result


def _gelu_approximate(x: Array) -> Array:
    result: Array = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return result


def _maximum(x: Array, y: Array) -> Array:
    """The second operand if either is NaN, as in TFLite."""
    return np.where(x > y, x, y)


def _minimum(x: Array, y: Array) -> Array:
    return np.where(x < y, x, y)


def _saturated(dtype: type[np.integer[Any]]) -> Callable[[Array], Array]:
    """A float as the nearest integer towards zero that ``dtype`` holds; NaN is the greatest, as in TFLite."""
    limits = np.iinfo(dtype)
    return lambda x: np.asarray(np.clip(np.trunc(np.where(np.isnan(x), np.inf, x)), limits.min, limits.max))


def _to_uint32(x: Array) -> Array:
    """The nearest integer towards zero, up to the largest unsigned number; negative ones wrap around, NaN is 0."""
    whole = np.clip(np.trunc(np.nan_to_num(x, nan=0.0)), np.iinfo(np.int32).min, np.iinfo(np.uint32).max)
    return np.asarray(whole % 2.0**32)


def _wrap(dtype: type[np.signedinteger[Any] | np.unsignedinteger[Any]]) -> Callable[[Array], Array]:
    """The low bits of an integer as ``dtype`` reads them."""
    return lambda x: np.asarray(x.astype(np.int64).astype(dtype), np.float64)


FUNCTIONS: dict[str, EpilogueFunction] = {
    "add": EpilogueFunction(np.add, True),
    "sub": EpilogueFunction(np.subtract, True),
    "mul": EpilogueFunction(np.multiply, True),
    "div": EpilogueFunction(np.divide, False),
    "maximum": EpilogueFunction(_maximum, True),
    "minimum": EpilogueFunction(_minimum, True),
    "prelu": EpilogueFunction(_prelu, True),
    "relu": EpilogueFunction(lambda x: np.maximum(x, 0), True),
    "relu6": EpilogueFunction(lambda x: np.clip(x, 0, 6), True),
    "relu_n1_to_1": EpilogueFunction(lambda x: np.clip(x, -1, 1), True),
    "relu_0_to_1": EpilogueFunction(lambda x: np.clip(x, 0, 1), True),
    "clamp": EpilogueFunction(np.clip, True),  # between a number up to 0 and one from 0
    "leaky_relu": EpilogueFunction(_prelu, True),
    "hard_swish": EpilogueFunction(lambda x: x * np.clip(x + 3, 0, 6) / 6, True),
    "elu": EpilogueFunction(_elu, True),
    "logistic": EpilogueFunction(_sigmoid, False),
    "tanh": EpilogueFunction(np.tanh, True),
    "exp": EpilogueFunction(np.exp, False),
    "log": EpilogueFunction(np.log, False),
    "sqrt": EpilogueFunction(np.sqrt, True),
    "rsqrt": EpilogueFunction(lambda x: 1 / np.sqrt(x), False),
    "square": EpilogueFunction(np.square, True),
    "pow": EpilogueFunction(np.power, False),
    "atan2": EpilogueFunction(np.arctan2, True),
    "floor_div": EpilogueFunction(lambda x, y: np.floor(x / y), False),
    "floor_mod": EpilogueFunction(np.mod, False),
    "gelu": EpilogueFunction(_gelu, True),
    "gelu_approximate": EpilogueFunction(_gelu_approximate, True),
    "equal": EpilogueFunction(np.equal, False, "int"),
    "not_equal": EpilogueFunction(np.not_equal, True, "int"),
    "less": EpilogueFunction(np.less, True, "int"),
    "less_equal": EpilogueFunction(np.less_equal, False, "int"),
    "greater": EpilogueFunction(np.greater, True, "int"),
    "greater_equal": EpilogueFunction(np.greater_equal, False, "int"),
    "logical_and": EpilogueFunction(np.logical_and, True),
    "logical_or": EpilogueFunction(np.logical_or, True),
    "logical_not": EpilogueFunction(np.logical_not, False),
    "select": EpilogueFunction(_select, True, "second"),
    "squared_difference": EpilogueFunction(lambda a, b: np.square(a - b), True),
    "abs": EpilogueFunction(np.abs, True),
    "neg": EpilogueFunction(np.negative, True),
    "sin": EpilogueFunction(np.sin, True),
    "cos": EpilogueFunction(np.cos, False),
    "floor": EpilogueFunction(np.floor, True),
    "ceil": EpilogueFunction(np.ceil, True),
    "round": EpilogueFunction(np.rint, True),
    "sign": EpilogueFunction(np.sign, True),
    "to_float": EpilogueFunction(lambda x: np.asarray(x, np.float64), True, "float"),
    "unsigned_to_float": EpilogueFunction(lambda x: np.asarray(x % 2.0**32, np.float64), True, "float"),
    "to_float16": EpilogueFunction(lambda x: np.asarray(x.astype(np.float16), np.float64), True),
    "to_int": EpilogueFunction(_saturated(np.int32), True, "int"),
    "saturated_int8": EpilogueFunction(_saturated(np.int8), True, "int"),
    "saturated_uint8": EpilogueFunction(_saturated(np.uint8), True, "int"),
    "saturated_int16": EpilogueFunction(_saturated(np.int16), True, "int"),
    "saturated_uint16": EpilogueFunction(_saturated(np.uint16), True, "int"),
    "to_uint32": EpilogueFunction(_to_uint32, True, "int"),
    "to_int8": EpilogueFunction(_wrap(np.int8), True),
    "to_uint8": EpilogueFunction(_wrap(np.uint8), True),
    "to_int16": EpilogueFunction(_wrap(np.int16), True),
    "to_uint16": EpilogueFunction(_wrap(np.uint16), True),
    "to_bool": EpilogueFunction(lambda x: x != 0, True, "int"),
    "dequantize": EpilogueFunction(lambda q, scale, zero: scale * (q - zero), False, "float"),
    "quantize": EpilogueFunction(_quantize, False, "int"),
    "simulate": EpilogueFunction(_simulate, False),
}

# Values of the schema's ActivationFunctionType; SIGN_BIT (5) has no meaning for floats.
ACTIVATIONS: dict[int, str] = {0: "", 1: "relu", 2: "relu_n1_to_1", 3: "relu6", 4: "tanh"}
