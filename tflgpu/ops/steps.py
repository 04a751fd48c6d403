"""Elementwise functions: the vocabulary of fused steps.

Each has a numpy meaning here (for constants) and a macro of the same name in ``templates/steps.cl.j2`` (for devices).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class StepFunction:
    """``evaluate(*operands, *parameters)``; ``keeps_zero``: the result is zero wherever all operands are."""

    evaluate: Callable[..., Array]
    keeps_zero: bool


def _sigmoid(x: Array) -> Array:
    result: Array = 1 / (1 + np.exp(-x))
    return result


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
}

# Values of the schema's ActivationFunctionType; SIGN_BIT (5) has no meaning for floats.
ACTIVATIONS: dict[int, str] = {0: "", 1: "relu", 2: "relu_n1_to_1", 3: "relu6", 4: "tanh"}
