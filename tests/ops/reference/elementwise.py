"""Functions of each element, and activations."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def relu(x: Array) -> Array:
    return np.maximum(x, 0)


def relu6(x: Array) -> Array:
    return np.clip(x, 0, 6)


def relu_n1_to_1(x: Array) -> Array:
    return np.clip(x, -1, 1)


def relu_0_to_1(x: Array) -> Array:
    return np.clip(x, 0, 1)


def hard_swish(x: Array) -> Array:
    return x * relu6(x + 3) / 6


def elu(x: Array) -> Array:
    return np.where(x < 0, np.expm1(x), x)


def rsqrt(x: Array) -> Array:
    return 1 / np.sqrt(x)


def squared_difference(x: Array, y: Array) -> Array:
    return np.square(x - y)


def truncated_div(x: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
    """Integer division that rounds towards zero."""
    magnitude = np.abs(x) // np.abs(y)
    return np.asarray(np.where((x < 0) != (y < 0), -magnitude, magnitude))


def gelu(x: Array) -> Array:
    """``x`` times the normal distribution's share below it."""
    result: Array = 0.5 * x * (1 + np.vectorize(math.erf, otypes=[np.float64])(x / np.sqrt(2)))
    return result


def gelu_approximate(x: Array) -> Array:
    """Hendrycks and Gimpel's approximation with a hyperbolic tangent (arXiv 1606.08415)."""
    result: Array = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return result


def logistic(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def prelu(x: Array, alpha: Array) -> Array:
    return np.where(x < 0, alpha * x, x)


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "NONE": np.positive,
    "RELU": relu,
    "RELU6": relu6,
    "RELU_N1_TO_1": relu_n1_to_1,
    "TANH": np.tanh,
}
