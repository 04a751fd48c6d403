"""Functions of one number of 16 bits, whose results for all 2^16 integers are known when a model is compiled.

LiteRT's kernels look up 513 ends of segments, or a sigmoid at 256 places, and interpolate in integers. Where a function
is strongly curved, that differs from the function by many steps. A table of all results has them, however LiteRT makes
them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tflgpu.graph.ir import Array, EpilogueOp, Input, Tensor, Value
from tflgpu.model.quantization import Grid, dequantize_op
from tflgpu.ops.arithmetic.reduction import reduce_node
from tflgpu.ops.declaration import Emitter, Site, judged
from tflgpu.ops.epilogue_ops import half_away
from tflgpu.ops.sixteen_bits.rules import fixed_point, is_symmetric, rule

SEGMENTS = 512

INTEGERS = np.arange(-(1 << 15), 1 << 15)

# Stands for an infinite result; the table clips it.
_BEYOND = 2.0**31

# SOFTMAX looks up exponentials of -10 to 0, and reciprocals of 1 to 2, both as multiples of 2^-15.
EXPONENTS = Grid("int16", 10 / (2**16 - 1), 2**15 - 1)
REMAINDERS = Grid("int16", 1 / (2**16 - 1), -(2**15))
UNIT = Grid("int16", 2 / (2**16 - 1), 0)

SIGMOIDS = 256  # at multiples of 1/24, from 0 on


def _log(x: Array) -> Array:
    return np.where(x > 0, np.log(np.where(x > 0, x, 1)), -_BEYOND)


def _rsqrt(x: Array) -> Array:
    return np.where(x > 0, 1 / np.sqrt(np.where(x > 0, x, 1)), _BEYOND)


@dataclass(frozen=True)
class Lookup:
    """Input 0 holds multiples of ``scale``, the least of which is ``least``; input 1 has the result of each, int16."""

    scale: float
    least: float


FUNCTIONS: dict[str, Callable[[Array], Array]] = {"EXP": np.exp, "LOG": _log, "RSQRT": _rsqrt}


@rule(*FUNCTIONS)
def interpolated(site: Site, emit: Emitter) -> Tensor | None:
    """Return a function of which LiteRT makes a table of segments."""
    grid, result = site.input_grids[0], judged(site.output_grids[0])
    if grid is None or grid.dtype != "int16":
        return None
    return _looked_up(site, emit, grid, result, read(table(grid, result, FUNCTIONS[site.code]), INTEGERS))


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


def table(grid: Grid, result: Grid, function: Callable[[Array], Array]) -> Array:
    """Return the integers at the ends of the segments, [513], as LiteRT's LUTPopulate makes them.

    Each is moved by half of the error in the middle of the segment after it.
    """
    least, greatest = grid.limits
    low, width = grid.scale * (least - grid.zero), grid.scale * (greatest - least) / SEGMENTS
    with np.errstate(all="ignore"):  # an extreme scale gives a useless table, as in TFLite
        starts = low + width * np.arange(SEGMENTS)
        # TFLite takes 2**16 quanta between the limits, where there are 2**16 - 1.
        quanta = np.divide(2.0**16 / (2.0**16 - 1), result.scale)
        value, middle, end = (function(starts + shift) * quanta for shift in (0, width / 2, width))
        value = half_away(value)
        error = half_away((value + end) / 2) - half_away(middle)
        last = half_away(function(np.array(low + width * SEGMENTS)) * quanta)
        entries: Array = np.clip(np.append(value - half_away(error / 2), last), *result.limits).astype(np.int64)
    return entries


def read(entries: Array, integers: Array) -> Array:
    """Return what LiteRT's LUTLookup finds in a table of segments for each of some integers."""
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
