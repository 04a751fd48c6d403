"""Elementwise functions: the vocabulary of fused steps.

Each has a numpy meaning here (for constants) and a macro of the same name in ``templates/steps.cl.j2`` (for devices).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


Result = Literal["first", "second", "float", "int"]


@dataclass(frozen=True)
class StepFunction:
    """An elementwise function.

    evaluate: ``evaluate(*operands, *parameters)`` in numpy.
    keeps_zero: the result is zero wherever all operands are.
    result: the vector type of the result, that of an operand or a fixed one; truth values are the ints 0 and 1.
    """

    evaluate: Callable[..., Array]
    keeps_zero: bool
    result: Result = "first"


def _sigmoid(x: Array) -> Array:
    result: Array = 1 / (1 + np.exp(-x))
    return result


def _half_away(x: Array) -> Array:
    """Round to nearest, halves away from zero, as OpenCL's ``round`` does."""
    rounded: Array = np.trunc(x + np.copysign(0.5, x))
    return rounded


def _quantize(x: Array, scale: float, zero: float, low: float, high: float) -> Array:
    q: Array = np.clip(_half_away(x / scale) + zero, low, high)
    return q


def _simulate(x: Array, low: float, high: float, scale: float) -> Array:
    """The nearest value that a quantized tensor of this range can hold."""
    return _half_away((np.clip(x, low, high) - low) / scale) * scale + low


def _elu(x: Array) -> Array:
    return np.where(x < 0, np.expm1(np.minimum(x, 0)), x)


def _prelu(x: Array, alpha: Array) -> Array:
    return np.where(x < 0, alpha * x, x)


FUNCTIONS: dict[str, StepFunction] = {
    "add": StepFunction(np.add, True),
    "sub": StepFunction(np.subtract, True),
    "mul": StepFunction(np.multiply, True),
    "div": StepFunction(np.divide, False),
    "maximum": StepFunction(np.maximum, True),
    "minimum": StepFunction(np.minimum, True),
    "prelu": StepFunction(_prelu, True),
    "relu": StepFunction(lambda x: np.maximum(x, 0), True),
    "relu6": StepFunction(lambda x: np.clip(x, 0, 6), True),
    "relu_n1_to_1": StepFunction(lambda x: np.clip(x, -1, 1), True),
    "relu_0_to_1": StepFunction(lambda x: np.clip(x, 0, 1), True),
    "leaky_relu": StepFunction(_prelu, True),
    "hard_swish": StepFunction(lambda x: x * np.clip(x + 3, 0, 6) / 6, True),
    "elu": StepFunction(_elu, True),
    "logistic": StepFunction(_sigmoid, False),
    "tanh": StepFunction(np.tanh, True),
    "exp": StepFunction(np.exp, False),
    "log": StepFunction(np.log, False),
    "sqrt": StepFunction(np.sqrt, True),
    "rsqrt": StepFunction(lambda x: 1 / np.sqrt(x), False),
    "square": StepFunction(np.square, True),
    "squared_difference": StepFunction(lambda a, b: np.square(a - b), True),
    "abs": StepFunction(np.abs, True),
    "neg": StepFunction(np.negative, True),
    "sin": StepFunction(np.sin, True),
    "cos": StepFunction(np.cos, False),
    "floor": StepFunction(np.floor, True),
    "ceil": StepFunction(np.ceil, True),
    "round": StepFunction(np.rint, True),
    "sign": StepFunction(np.sign, True),
    "to_float": StepFunction(lambda x: np.asarray(x, np.float64), True, "float"),
    "to_int": StepFunction(np.trunc, True, "int"),
    "to_bool": StepFunction(lambda x: x != 0, True, "int"),
    "dequantize": StepFunction(lambda q, scale, zero: scale * (q - zero), False, "float"),
    "quantize": StepFunction(_quantize, False, "int"),
    "simulate": StepFunction(_simulate, False),
}

# Values of the schema's ActivationFunctionType; SIGN_BIT (5) has no meaning for floats.
ACTIVATIONS: dict[int, str] = {0: "", 1: "relu", 2: "relu_n1_to_1", 3: "relu6", 4: "tanh"}
