"""Functions of one number of 16 bits, whose results for all 2^16 integers are known when a model is compiled.

LiteRT's kernels look up 513 ends of segments, or a sigmoid at 256 places, and interpolate in integers. Where a function
is strongly curved, that differs from the function by many steps. A table of all results has them, however LiteRT makes
them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import erfc
from typing import Any

import numpy as np

from tflgpu.graph.ir import Array, EpilogueOp, Input, Tensor, Value
from tflgpu.model.quantization import Grid, dequantize_op
from tflgpu.ops.arithmetic.reduction import reduce_node
from tflgpu.ops.declaration import Emitter, Site, judged
from tflgpu.ops.epilogue_ops import half_away
from tflgpu.ops.sixteen_bits.rules import fixed_point, is_symmetric, rule

SEGMENTS = 512

INTEGERS = np.arange(-(1 << 15), 1 << 15)

# SOFTMAX looks up exponentials of -10 to 0, and reciprocals of 1 to 2, both as multiples of 2^-15.
EXPONENTS = Grid("int16", 10 / (2**16 - 1), 2**15 - 1)
REMAINDERS = Grid("int16", 1 / (2**16 - 1), -(2**15))
UNIT = Grid("int16", 2 / (2**16 - 1), 0)

SIGMOIDS = 256  # at multiples of 1/24, from 0 on


def _exact(function: Callable[[Array], Array], x: Array) -> Array:
    """Return a function of numbers in single or double precision, rounded once."""
    return np.asarray(function(x.astype(np.float64))).astype(x.dtype)


def _log(x: Array, result: Grid) -> Array:
    return np.where(x > 0, _exact(np.log, np.where(x > 0, x, 1)), _real(x, result.scale) * result.limits[0])


def _rsqrt(x: Array, result: Grid) -> Array:
    return np.where(x > 0, 1 / np.sqrt(np.where(x > 0, x, 1)), _real(x, result.scale) * result.limits[1])


def _gelu(x: Array, _: Grid) -> Array:
    return 0.5 * x * _exact(np.vectorize(erfc, otypes=[float]), x * -np.sqrt(0.5).astype(x.dtype))


def _gelu_approximate(x: Array, _: Grid) -> Array:
    cubic = x + 0.044715 * x * x * x
    return np.asarray(0.5 * x * (1 + _exact(np.tanh, _real(x, np.sqrt(2 / np.pi)) * cubic)))


def _real(x: Array, number: float) -> Any:
    """Return a number in the precision of an array."""
    return x.dtype.type(number)


@dataclass(frozen=True)
class Lookup:
    """Input 0 holds multiples of ``scale``, the least of which is ``least``; input 1 has the result of each, int16."""

    scale: float
    least: float


FUNCTIONS: dict[str, Callable[[Array, Grid], Array]] = {
    "EXP": lambda x, _: _exact(np.exp, x),
    "GELU": _gelu,
    "LOG": _log,
    "RSQRT": _rsqrt,
}


@rule(*FUNCTIONS)
def interpolated(site: Site, emit: Emitter) -> Tensor | None:
    """Return a function of which LiteRT makes a table of segments, in single precision."""
    grid, result = site.input_grids[0], judged(site.output_grids[0])
    if grid is None or grid.dtype != "int16":
        return None
    function = _gelu_approximate if site.options.get("approximate") else FUNCTIONS[site.code]
    entries = table(grid, result, lambda x: function(x, result), np.float32)
    return _looked_up(site, emit, grid, result, read(entries, INTEGERS))


@rule("SQRT")
def square_root(site: Site, emit: Emitter) -> Tensor | None:
    """Return the root in single precision, whose fraction of a step LiteRT cuts off."""
    grid, result = site.input_grids[0], judged(site.output_grids[0])
    if grid is None or grid.dtype != "int16":
        return None
    x = np.float32(grid.scale) * np.maximum(INTEGERS - grid.zero, 0).astype(np.float32)
    values = np.trunc(np.sqrt(x) / np.float32(result.scale)) + result.zero
    return _looked_up(site, emit, grid, result, np.clip(values, *result.limits))


@rule("LOGISTIC", "TANH")
def sigmoid(site: Site, emit: Emitter) -> Tensor | None:
    """By LiteRT's table of sigmoids, and ``tanh(x) = 2 * sigmoid(2 * x) - 1``."""
    grid, result = site.input_grids[0], judged(site.output_grids[0])
    if grid is None or not is_symmetric(grid) or not is_symmetric(result):
        return None
    multiplier, shift = grid.scale * 4096 * 3, 0
    while multiplier <= ((1 << 15) - 1) / 2 and shift <= 30:
        multiplier, shift = multiplier * 2, shift + 1
    if multiplier >= 1 << 15:
        return None
    x = (INTEGERS * int(multiplier) + (1 << shift >> 1)) >> shift
    bits = 8 if site.code == "TANH" else 9
    place, part = np.abs(x) >> bits, np.abs(x) & (1 << bits) - 1
    start, end = (_sigmoids()[np.minimum(place + i, SIGMOIDS - 1)] for i in (0, 1))
    value = (start << bits) + part * (end - start)
    if site.code == "TANH":
        value = np.where(place >= SIGMOIDS - 1, 0xFFFF << bits, value) - (1 << 23)
        value = (np.where(x >= 0, value, -value - 1) + (1 << 7)) >> 8
    else:
        value = np.where(place >= SIGMOIDS - 1, 0x7FFF << 10, value)
        value = (np.where(x >= 0, value, (1 << 25) - 1 - value) + (1 << 9)) >> 10
    return _looked_up(site, emit, grid, result, value)


def _sigmoids() -> Array:
    """Multiples of 2^-16, moved by half of the error in the middle of the segment after each."""
    at = np.arange(SIGMOIDS)

    def function(x: Array) -> Array:
        return np.asarray(2.0**16 / (1 + np.exp(-x / 24)))

    error = function(at + 0.5) - (function(at) + function(at + 1)) / 2
    values = half_away(function(at) + error / 2).astype(np.int64)
    return np.append(values[:-1], (1 << 16) - 1)


def _looked_up(site: Site, emit: Emitter, grid: Grid, result: Grid, values: Array) -> Tensor:
    """Return the node, for the integers that ``values`` has for each one of the input."""
    x, entries = site.input(0), emit.constant(values.astype(np.int16))
    attributes = Lookup(grid.scale, float(INTEGERS[0] - grid.zero))
    return emit.node("lookup", [x, entries], x.shape, attributes, (dequantize_op(result),))


def table(grid: Grid, result: Grid, function: Callable[[Array], Array], real: type = np.float64) -> Array:
    """Return the integers at the ends of the segments, [513], as LiteRT's LUTPopulate makes them.

    Each is moved by half of the error in the middle of the segment after it.

    Args:
        grid: The operand's.
        result: The result's.
        function: In numpy.
        real: The type of all numbers.
    """
    low, high = (real(grid.scale) * real(limit - grid.zero) for limit in grid.limits)
    least, greatest = (real(result.scale) * real(limit - result.zero) for limit in result.limits)
    with np.errstate(all="ignore"):  # an extreme scale gives a useless table, as in TFLite
        step = (high - low) / real(SEGMENTS)
        starts = low + np.arange(SEGMENTS + 1).astype(real) * step
        # TFLite takes 2**16 quanta between the limits, where there are 2**16 - 1.
        quanta = real(2.0**16) / (greatest - least)
        ends, middle, last = (function(at) * quanta for at in (starts, starts[:-1] + step / real(2), np.array([high])))
        value = half_away(ends[:-1])
        error = half_away((ends[1:] + value) / real(2)) - half_away(middle)
        entries = np.append(value - half_away(error / real(2)), half_away(last))
    return np.asarray(np.clip(np.nan_to_num(entries, nan=result.limits[1]), *result.limits), np.int64)


def read(entries: Array, integers: Array) -> Array:
    """Return what LiteRT's LUTLookup finds in a table of segments.

    Args:
        entries: The table, [513].
        integers: From -2^15 to 2^15 - 1.
    """
    place = integers + (1 << 15)
    start, end = entries[place >> 7], entries[(place >> 7) + 1]
    return np.asarray(start + ((end - start) * (place & 127) + 64 >> 7))


@rule("SOFTMAX")
def softmax(site: Site, emit: Emitter) -> Tensor | None:
    """Exponentials and the reciprocal of their sum by tables, where a row's greatest number has the exponential 1."""
    x, grid, result = site.input(0), site.input_grids[0], judged(site.output_grids[0])
    if grid is None or grid.dtype != "int16" or not is_symmetric(result) or x.size == 0:
        return None
    last = (len(x.shape) - 1,)
    greatest = reduce_node(emit, x, "max", last)
    below = emit.node("map", [x, greatest], x.shape, None, (EpilogueOp("sub", (Value(0), Input(1))),))
    multiplier, exponent = fixed_point(np.array(grid.scale * float(site.options.get("beta", 1.0)) / EXPONENTS.scale))
    steps = np.arange(-(1 << 16) + 1, 1)
    scaled = steps * (multiplier << max(int(exponent), 0)) + (1 << 30) >> 31
    if exponent < 0:
        scaled = scaled + (1 << -int(exponent) - 1) + (scaled >> 63) >> -int(exponent)
    places = np.clip(scaled + EXPONENTS.zero, *EXPONENTS.limits).astype(np.int64)
    exponentials = emit.constant(read(table(EXPONENTS, UNIT, np.exp), places).astype(np.int16))
    lookup = Lookup(grid.scale, float(steps[0]))
    powers = emit.node("lookup", [below, exponentials], x.shape, lookup, (), "int32")
    total = reduce_node(emit, powers, "sum", last)
    reciprocals = emit.constant(read(table(REMAINDERS, UNIT, lambda r: 1 / (1 + r)), INTEGERS).astype(np.int16))
    to_place = (EpilogueOp("reciprocal_place", (Value(0),)), EpilogueOp("to_float", (Value(1),)))
    place = emit.node("map", [total], total.shape, None, to_place, "float32")
    reciprocal = emit.node("lookup", [place, reciprocals], place.shape, Lookup(1.0, 0.0), (), "int32")
    quotient = EpilogueOp("softmax_quotient", (Value(0), Input(1), Input(2)))
    epilogue = (quotient, EpilogueOp("dequantize", (Value(1),), (result.scale, 0.0)))
    return emit.node("map", [powers, reciprocal, total], x.shape, None, epilogue, "float32")
