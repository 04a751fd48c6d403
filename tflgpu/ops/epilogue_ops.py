"""The elementwise functions that epilogue ops apply.

Each has a numpy definition here, for constants, and a macro of the same name for devices in
``templates/access/epilogue_ops.cl.j2``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import erf
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tflgpu.target import VectorType, vector_of

Array = NDArray[Any]

Result = Literal["first", "second", "float", "int", "long", "uint", "double"]

# The effect of a rounded operand on a result. "smooth": little more than its own error; "steep": much, where the
# operand is large or near zero; "jumps": any rounding may change the result by a whole step; "compares": the same,
# except beside zero, because rounding keeps the sign.
Rounding = Literal["smooth", "steep", "jumps", "compares"]


@dataclass(frozen=True)
class EpilogueFunction:
    """An elementwise function.

    evaluate: ``evaluate(*operands, *parameters)`` in numpy; see :func:`apply`.
    keeps_zero: the result is zero wherever all operands are.
    result: the result's type: that of the first or second operand, or a fixed one. Booleans are the ints 0 and 1.
    rounding: what operands that are stored in half do to the result.
    grows: whether operands of usual size may have results beyond 65504.
    """

    evaluate: Callable[..., Array]
    keeps_zero: bool
    result: Result = "first"
    rounding: Rounding = "smooth"
    grows: bool = False


def _sigmoid(x: Array) -> Array:
    result: Array = 1 / (1 + np.exp(-x))
    return result


def half_away(x: Array) -> Array:
    """Round to nearest, halves away from zero, as OpenCL's ``round`` does.

    Args:
        x: Floats.
    """
    rounded: Array = np.trunc(x + np.copysign(0.5, x))
    return rounded


def _quantize(
    x: Array,
    scale: float,
    zero: float,
    low: float,
    high: float,
    source: float | None = None,
    ratio: float = 1.0,
    rest: float = 0.0,
) -> Array:
    """Return the integers of a grid for numbers, or for multiples of ``source``, see :func:`_requantize`."""
    rounded = half_away(x / scale) if source is None else half_away(half_away(x / source) * (ratio + rest))
    q: Array = np.clip(rounded + zero, low, high)
    return q


def _fake_quantize(x: Array, scale: float, zero: float, low: float, high: float, divisor: float | None = None) -> Array:
    """Return the nearest value that a quantized tensor can hold: quantize and dequantize, perhaps from another
    scale."""
    return scale * (_quantize(x, divisor or scale, zero, low, high) - zero)


def _requantize(
    x: Array, scale: float, zero: float, low: float, high: float, source: float, ratio: float, rest: float
) -> Array:
    """Return a multiple of ``source`` as the nearest value that a tensor with ``scale`` can hold.

    ratio, rest: floats whose sum is ``source / scale`` with twice their digits.
    """
    return scale * (_quantize(x, scale, zero, low, high, source, ratio, rest) - zero)


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
    """Return the second operand if either is NaN, as in TFLite."""
    return np.where(x > y, x, y)


def _minimum(x: Array, y: Array) -> Array:
    return np.where(x < y, x, y)


def _divisor(y: Array) -> Array:
    """Return what integers are divided by: 1 for 0, as on the device."""
    return np.where(y == 0, np.ones_like(y), y)


def _div(x: Array, y: Array) -> Array:
    """Quotients of integers are truncated."""
    if x.dtype.kind == "f":
        return np.asarray(x / y)
    y = _divisor(y)
    floor = x // y
    return np.asarray(floor + ((x % y != 0) & ((x < 0) != (y < 0))))


def _floor_div(x: Array, y: Array) -> Array:
    return np.asarray(np.floor(x / y) if x.dtype.kind == "f" else x // _divisor(y))


def _floor_mod(x: Array, y: Array) -> Array:
    return np.asarray(np.mod(x, y if x.dtype.kind == "f" else _divisor(y)))


def _remainder(x: Array, y: Array) -> Array:
    """Return what a truncating division leaves."""
    return np.asarray(np.fmod(x, y if x.dtype.kind == "f" else _divisor(y)))


def _pow(x: Array, y: Array) -> Array:
    return np.asarray(np.power(x, y if x.dtype.kind == "f" else np.maximum(y, 0)))


def _right_shift(x: Array, y: Array, most: float) -> Array:
    """By 0 to ``most`` bits. Signed numbers keep their sign."""
    return np.asarray(np.right_shift(x, np.clip(y, 0, int(most)).astype(x.dtype)))


def _saturated(dtype: type[np.signedinteger[Any] | np.unsignedinteger[Any]]) -> Callable[[Array], Array]:
    """Return a float as the nearest integer towards zero that ``dtype`` holds; NaN is the greatest, as in TFLite."""
    limits = np.iinfo(dtype)

    def saturated(x: Array) -> Array:
        if x.dtype.kind != "f":
            return np.clip(x, limits.min, limits.max).astype(dtype)
        below, above = x < limits.min, ~(x < limits.max + 1)  # the limits are exact in double, unlike limits.max
        inside = np.where(below | above, 0.0, x).astype(dtype)
        return np.asarray(np.where(below, limits.min, np.where(above, limits.max, inside)), dtype)

    return saturated


def _whole(dtype: type[np.signedinteger[Any] | np.unsignedinteger[Any]]) -> Callable[[Array], Array]:
    """Return a number as ``dtype``: floats saturate, integers keep their low bits."""
    saturated = _saturated(dtype)
    return lambda x: saturated(x) if x.dtype.kind == "f" else x.astype(dtype)


def _wrap(dtype: type[np.signedinteger[Any] | np.unsignedinteger[Any]]) -> Callable[[Array], Array]:
    """Return the low bits of an integer as ``dtype`` reads them."""
    return lambda x: np.asarray(x.astype(np.int64).astype(dtype), np.float64)


def _joined(low: Array, high: Array) -> Array:
    return np.asarray(low.astype(np.int64) + 256 * high.astype(np.int64))


def _scaled_shift(x: Array, multiplier: Array | int, bits: Array | int) -> Array:
    """``x * multiplier / 2**bits``, halves rounded up."""
    x, multiplier, bits = (np.asarray(n, np.int64) for n in (x, multiplier, bits))
    return np.asarray((x * multiplier + (np.int64(1) << bits >> 1)) >> bits)


def _rounding_shift(x: Array, bits: Array | int) -> Array:
    """``x / 2**bits``, halves rounded away from zero."""
    x, bits = (np.asarray(n, np.int64) for n in (x, bits))
    return np.asarray((x + (np.int64(1) << bits >> 1) + (x >> 63) * np.minimum(bits, 1)) >> bits)


def _reciprocal_place(total: Array) -> Array:
    """Return the bits after the first of a sum of exponentials, from 0 to 2^16 - 1: where SOFTMAX looks up its
    reciprocal."""
    zeros = 31 - np.floor(np.log2(np.maximum(total, 1))).astype(np.int64)
    place = (total.astype(np.int64) << zeros - 1) + (1 << 13) >> 14
    return np.asarray(np.clip(place - (1 << 16), 0, (1 << 16) - 1))


def _softmax_quotient(x: Array, reciprocal: Array, total: Array) -> Array:
    """Return an exponential by the reciprocal of their sum's bits, shifted by the place of the first."""
    bits = np.floor(np.log2(np.maximum(total, 1))).astype(np.int64)
    return np.asarray(np.clip(_scaled_shift(x, reciprocal, bits), 0, (1 << 15) - 1))


FUNCTIONS: dict[str, EpilogueFunction] = {
    "add": EpilogueFunction(np.add, True),
    "sub": EpilogueFunction(np.subtract, True),
    "mul": EpilogueFunction(np.multiply, True),
    "div": EpilogueFunction(_div, False, rounding="steep"),
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
    "logistic": EpilogueFunction(_sigmoid, False, rounding="steep"),
    "tanh": EpilogueFunction(np.tanh, True),
    "exp": EpilogueFunction(np.exp, False, rounding="steep", grows=True),
    "log": EpilogueFunction(np.log, False, rounding="steep"),
    "sqrt": EpilogueFunction(np.sqrt, True),
    "rsqrt": EpilogueFunction(lambda x: 1 / np.sqrt(x), False, rounding="steep"),
    "square": EpilogueFunction(np.square, True, grows=True),
    "pow": EpilogueFunction(_pow, False, rounding="steep", grows=True),
    "cbrt": EpilogueFunction(np.cbrt, True),
    "remainder": EpilogueFunction(_remainder, False, rounding="jumps"),
    "atan2": EpilogueFunction(np.arctan2, True, rounding="steep"),
    "floor_div": EpilogueFunction(_floor_div, False, rounding="jumps"),
    "floor_mod": EpilogueFunction(_floor_mod, False, rounding="jumps"),
    "gelu": EpilogueFunction(_gelu, True),
    "gelu_approximate": EpilogueFunction(_gelu_approximate, True),
    "equal": EpilogueFunction(np.equal, False, "int", rounding="compares"),
    "not_equal": EpilogueFunction(np.not_equal, True, "int", rounding="compares"),
    "less": EpilogueFunction(np.less, True, "int", rounding="compares"),
    "less_equal": EpilogueFunction(np.less_equal, False, "int", rounding="compares"),
    "greater": EpilogueFunction(np.greater, True, "int", rounding="compares"),
    "greater_equal": EpilogueFunction(np.greater_equal, False, "int", rounding="compares"),
    "logical_and": EpilogueFunction(np.logical_and, True),
    "logical_or": EpilogueFunction(np.logical_or, True),
    "logical_not": EpilogueFunction(np.logical_not, False),
    "bitwise_xor": EpilogueFunction(np.bitwise_xor, True),
    "bits_of_float": EpilogueFunction(lambda x: x.astype(np.float32).view(np.int32), True, "int", rounding="jumps"),
    "float_of_bits": EpilogueFunction(lambda x: x.view(np.float32), True, "float"),
    "shift_left": EpilogueFunction(lambda x, y: np.left_shift(x, y & 31), True),
    "right_shift": EpilogueFunction(_right_shift, True),
    "select": EpilogueFunction(_select, True, "second"),
    "squared_difference": EpilogueFunction(lambda a, b: np.square(a - b), True, grows=True),
    "abs": EpilogueFunction(np.abs, True),
    "neg": EpilogueFunction(np.negative, True),
    "sin": EpilogueFunction(np.sin, True, rounding="steep"),
    "cos": EpilogueFunction(np.cos, False, rounding="steep"),
    "floor": EpilogueFunction(np.floor, True, rounding="jumps"),
    "ceil": EpilogueFunction(np.ceil, True, rounding="jumps"),
    "round": EpilogueFunction(np.rint, True, rounding="jumps"),
    "sign": EpilogueFunction(np.sign, True),
    "to_float": EpilogueFunction(lambda x: x.astype(np.float32), True, "float"),
    "to_double": EpilogueFunction(lambda x: x.astype(np.float64), True, "double"),
    "to_float16": EpilogueFunction(lambda x: np.asarray(x.astype(np.float16), np.float64), True),
    "to_int": EpilogueFunction(_whole(np.int32), True, "int", rounding="jumps"),
    "to_long": EpilogueFunction(_whole(np.int64), True, "long", rounding="jumps"),
    "to_uint": EpilogueFunction(_whole(np.uint32), True, "uint", rounding="jumps"),
    "to_index": EpilogueFunction(_saturated(np.int32), True, "int", rounding="jumps"),
    "saturated_int8": EpilogueFunction(_saturated(np.int8), True, "int", rounding="jumps"),
    "saturated_uint8": EpilogueFunction(_saturated(np.uint8), True, "int", rounding="jumps"),
    "saturated_int16": EpilogueFunction(_saturated(np.int16), True, "int", rounding="jumps"),
    "saturated_uint16": EpilogueFunction(_saturated(np.uint16), True, "int", rounding="jumps"),
    "to_int8": EpilogueFunction(_wrap(np.int8), True),
    "to_uint8": EpilogueFunction(_wrap(np.uint8), True),
    "to_int16": EpilogueFunction(_wrap(np.int16), True),
    "to_uint16": EpilogueFunction(_wrap(np.uint16), True),
    "to_bool": EpilogueFunction(lambda x: x != 0, True, "int"),
    "dequantize": EpilogueFunction(lambda q, scale, zero: scale * (q - zero), False, "float"),
    "shift": EpilogueFunction(np.add, False),  # of integers
    "quantize": EpilogueFunction(_quantize, False, "int"),
    "round_to_grid": EpilogueFunction(_quantize, False, "int"),
    "fake_quantize": EpilogueFunction(_fake_quantize, False),
    "requantize": EpilogueFunction(_requantize, False),
    # In whole numbers, as LiteRT's kernels of 16 bits compute.
    "steps": EpilogueFunction(lambda x, scale: half_away(x / scale), True),
    "higher_byte": EpilogueFunction(lambda x: np.floor(x / 256), True),
    "lower_byte": EpilogueFunction(lambda x: np.mod(x, 256), True),
    "joined": EpilogueFunction(_joined, True, "long"),
    "scaled_shift": EpilogueFunction(_scaled_shift, False),
    "rounding_shift": EpilogueFunction(_rounding_shift, True),
    "reciprocal_place": EpilogueFunction(_reciprocal_place, False),
    "softmax_quotient": EpilogueFunction(_softmax_quotient, False),
}

# Functions whose results a type of 8 or 16 bits may not hold, although the operands have it.
GROWING = frozenset(
    ("abs", "add", "div", "floor_div", "mul", "neg", "pow", "shift_left", "square", "squared_difference", "sub")
)

# In what numpy computes for vectors on the device: floats in double, integers with the wrap-around of their vectors.
_COMPUTED: dict[VectorType, type[np.generic]] = {
    "float": np.float64,
    "double": np.float64,
    "int": np.int32,
    "long": np.int64,
    "uint": np.uint32,
}


def computed(x: Array) -> Array:
    """Return an array as :func:`apply` takes operands.

    Args:
        x: Of any type that a tensor may have.
    """
    return x.astype(_COMPUTED[vector_of(x.dtype.name)])


def apply(name: str, operands: Sequence[Array], parameters: Sequence[float]) -> Array:
    """Return the result of a function in numpy.

    Args:
        name: The function's.
        operands: Of the types of :func:`computed`, as is the result.
        parameters: Constants of the op.
    """
    function = FUNCTIONS[name]
    with np.errstate(all="ignore"):  # infinities, NaN and what wraps around are results, as on a device
        result = function.evaluate(*operands, *parameters)
        match function.result:
            case "first":
                return result.astype(operands[0].dtype)
            case "second":
                return result.astype(operands[1].dtype)
            case fixed:
                return result.astype(_COMPUTED[fixed])


# Values of the schema's ActivationFunctionType; SIGN_BIT (5) has no meaning for floats.
ACTIVATIONS: dict[int, str] = {0: "", 1: "relu", 2: "relu_n1_to_1", 3: "relu6", 4: "tanh"}
