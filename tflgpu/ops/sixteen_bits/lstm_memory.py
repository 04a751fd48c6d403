"""LSTMs of 8 bits, whose gates and cells have 16, with the sigmoid and tangent of LiteRT's integer LSTM.

LiteRT's kernels compute both functions in fixed point with 16 bits: an exponential by a Taylor series on an interval
and a factor for each higher bit, and a reciprocal by three steps of Newton's method. Here all of it runs on arrays, in
the same order, with the same rounding; a kernel looks the results up.

LiteRT rounds the sums of inputs and those of outputs to 16 bits each, computes gates in fixed point, and lets cells
saturate. What differs there by a step is read again at the next time.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tflgpu.graph.ir import Array, EpilogueOp, Tensor, Value
from tflgpu.model.quantization import Grid
from tflgpu.ops.declaration import Emitter, Site, judged
from tflgpu.ops.lstm import (
    BIASES,
    CELL,
    HIDDEN,
    NORMS,
    PEEPHOLES,
    PROJECTION,
    PROJECTION_BIAS,
    RECURRENT,
    WEIGHTS,
    Multiplier,
    Whole,
    WholeSteps,
    gates_of,
    lstm,
    unidirectional_sequence_lstm,
)
from tflgpu.ops.sixteen_bits.rules import fixed_point, is_symmetric, rule

ONE = (1 << 15) - 1  # nearest to 1 with no bits before the point

LEAST = -(1 << 15)

QUARTER = 2  # 1/4 is 2^-2

NUMBERS = np.arange(LEAST, ONE + 1)


def sigmoids() -> Array:
    """Return 2^15 times the sigmoid of each multiple of 2^-12, [2^16]."""
    x = np.where(NUMBERS > 0, NUMBERS, -NUMBERS)
    above = np.clip(_doubled(_newton(_exponential(-x, 3)), 1), LEAST, ONE)
    return np.where(NUMBERS == 0, 1 << 14, np.where(NUMBERS > 0, above, ONE - above)).astype(np.int16)


def tangents(bits: int) -> Array:
    """Return 2^15 times the hyperbolic tangent of each 16-bit number, [2^16].

    Args:
        bits: Bits of a number before the point.
    """
    below = _doubled(_newton(_exponential(np.minimum(NUMBERS, -NUMBERS), bits + 1)) - (1 << 13), 2)
    return np.where(NUMBERS == 0, 0, np.where(NUMBERS < 0, -below, below)).astype(np.int16)


def _product(a: Array | int, b: Array | int) -> Array:
    """Return ``a * b / 2^15``, halves rounded up."""
    rounded: Array = np.asarray(a, np.int64) * b + (1 << 14) >> 15
    return np.minimum(rounded, ONE)


def _halved(x: Array, times: int) -> Array:
    """Return ``x / 2^times``, halves rounded away from zero."""
    return np.asarray((x + (1 << times - 1) + (x >> 63)) >> times)


def _doubled(x: Array, times: int) -> Array:
    return np.asarray(np.clip(x << times, LEAST, ONE))


def _constant(x: float) -> int:
    """Return a constant with no bits before the point; of 31 bits first, as LiteRT's are written."""
    return int(_halved(np.array(round(x * 2**31)), 16))


def _exponential(x: Array, bits: int) -> Array:
    """Return the exponential of numbers up to 0, which have ``bits`` bits before the point."""
    quarter = 1 << 15 - bits - QUARTER
    part = (x & quarter - 1) - quarter
    near, factor = _doubled(part, bits) + (1 << 12), _constant(np.exp(-1 / 8))  # around -1/8
    square = _product(near, near)
    higher = _halved(_product(square, square), 2) + _product(square, near)
    series = near + _halved(_product(higher, _constant(1 / 3)) + square, 1)
    result = np.minimum(factor + _product(factor, series), ONE)
    rest = part - x
    for exponent in range(-QUARTER, bits):
        is_set = rest & 1 << 15 - bits + exponent
        result = np.where(is_set, _product(result, _constant(np.exp(-(2.0**exponent)))), result)
    if bits > 5:
        result = np.where(x < -32 << 15 - bits, 0, result)
    return np.where(x == 0, ONE, result)


def _newton(x: Array) -> Array:
    """Return ``2 / (1 + x)`` for numbers from 0 to 1; two bits are before its point."""
    half = x + ONE + 1 >> 1
    found = _wide(48 / 17) + _product(half, _wide(-32 / 17))
    for _ in range(3):
        found = found + _doubled(_product(found, (1 << 13) - _product(half, found)), 2)
    return found


def _wide(x: float) -> int:
    """Return a constant with two bits before the point."""
    return _constant(x / 4)


TANH = 4  # of the schema's activations

GATE_SCALE = np.float32(2.0**-12)

CELL_BITS = 15  # after the point of cells, less those before it, of which LiteRT's tangent knows up to 6

MOST_BITS = 6

SHOWN = 4  # among the intermediate tensors: what the output gate shows of cells, before a projection


@rule("LSTM", "UNIDIRECTIONAL_SEQUENCE_LSTM", results="int8", activations=(TANH,))
def memory(site: Site, emit: Emitter) -> Tensor | None:
    """Return the outputs of an LSTM without layer norm, for cells of which LiteRT knows the tangent."""
    steps = _steps(site)
    if steps is None:
        return None
    bits = steps.cell_bits - CELL_BITS
    functions = np.concatenate([sigmoids(), tangents(3), tangents(bits)])
    grid, x = judged(site.input_grids[0]), site.input(0)
    counted = emit.node("map", [x], x.shape, None, (EpilogueOp("steps", (Value(0),), (grid.scale,)),), precise=True)
    inputs = [counted, *(_stored(site, place) for place in range(1, len(site.inputs)))]
    bare, whole = replace(site, inputs=tuple(inputs)), Whole(steps, functions)
    is_sequence = site.code != "LSTM"
    result = unidirectional_sequence_lstm(bare, emit, whole) if is_sequence else lstm(bare, emit, whole)
    assert isinstance(result, Tensor)
    return result


def _stored(site: Site, place: int) -> Tensor | None:
    """Return an input whose elements are the integers of the file, if it is a constant."""
    tensor, integers = site.inputs[place], site.stored[place]
    if tensor is None or integers is None:
        return tensor
    return replace(tensor, data=integers.astype(np.float32), scale=None)


def _steps(site: Site) -> WholeSteps | None:
    """Return how LiteRT rounds; None for layer norm, and where it has no kernel of integers."""
    gates, places = gates_of(site), range(1, len(site.inputs))
    x, hidden, cell = (site.input_grids[place] for place in (0, HIDDEN, CELL))
    shown = dict(enumerate(site.intermediate_grids)).get(SHOWN)
    if x is None or hidden is None or cell is None or shown is None or {x.dtype, hidden.dtype, shown.dtype} != {"int8"}:
        return None
    if site.optional(NORMS + 1) is not None or len(site.input(RECURRENT + 1).shape) != 2:
        return None
    constants = [place for place in places if place not in (HIDDEN, CELL) and site.optional(place) is not None]
    if any(site.stored[place] is None or not _is_whole(site, place) for place in constants):
        return None
    fraction, exponent = np.frexp(cell.scale)
    bits = int(exponent) + CELL_BITS - 1
    if hidden != site.output_grids[0] or not is_symmetric(cell) or fraction != 1 / 2 or not 0 <= bits <= MOST_BITS:
        return None

    def multipliers(first: int, scale: float) -> tuple[Multiplier, ...]:
        return tuple(_multiplier(_scale(site, first + gate) * np.float32(scale) / GATE_SCALE) for gate in gates)

    def clip(option: str, grid: Grid) -> int:
        steps = np.float32(site.options.get(option, 0.0)) / np.float32(grid.scale)
        return int(min(float(steps), grid.limits[1]))

    return WholeSteps(
        scale=hidden.scale,
        zero=int(hidden.zero),
        cell_scale=cell.scale,
        cell_bits=CELL_BITS + bits,
        inputs=multipliers(WEIGHTS, x.scale),
        recurrent=multipliers(RECURRENT, hidden.scale),
        peepholes=tuple(
            _multiplier(_scale(site, PEEPHOLES.get(gate)) * np.float32(cell.scale) / GATE_SCALE) for gate in gates
        ),
        hidden=_multiplier(np.float32(2.0**-30 / shown.scale)),
        hidden_zero=int(shown.zero),
        projection=_multiplier(_scale(site, PROJECTION) * np.float32(shown.scale) / np.float32(hidden.scale)),
        clips=(clip("cell_clip", cell), clip("proj_clip", hidden)),
    )


def _is_whole(site: Site, place: int) -> bool:
    """Whether a constant is a bias of integers, or has one scale and no zero point, and the type that kernels read."""
    tensor, grid = site.input(place), site.input_grids[place]
    if place in (*range(BIASES, BIASES + 4), PROJECTION_BIAS):
        return judged(site.stored[place]).dtype == np.int32
    dtype = "int16" if place in PEEPHOLES.values() else "int8"
    return grid is not None and grid.zero == 0 and grid.dtype == dtype and judged(tensor.scale).size == 1


def _scale(site: Site, place: int | None) -> np.float32:
    """Return the scale of an input, in single precision as LiteRT multiplies scales; 1 if it is absent."""
    grid = None if place is None or site.optional(place) is None else site.input_grids[place]
    return np.float32(1.0 if grid is None else grid.scale)


def _multiplier(real: np.float32) -> Multiplier:
    multiplier, exponent = fixed_point(np.array(float(real)))
    return int(multiplier), int(exponent)
