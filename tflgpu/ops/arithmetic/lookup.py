"""Functions that TFLite evaluates in a table for 16-bit tensors: linear between the ends of 512 segments.

Where the function bends, that is many quanta off the function itself, so the table is built and read as TFLite does
(LUTPopulateInt16 and LUTLookup in its common.h).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tflgpu.graph.ir import Array, Tensor
from tflgpu.model.quantization import Grid, dequantize_op
from tflgpu.ops.declaration import Emitter
from tflgpu.ops.epilogue_ops import half_away

SEGMENTS = 512

# What stands for a result out of all bounds; the table clips it.
_BEYOND = 2.0**31


def _log(x: Array) -> Array:
    return np.where(x > 0, np.log(np.where(x > 0, x, 1)), -_BEYOND)


def _rsqrt(x: Array) -> Array:
    return np.where(x > 0, 1 / np.sqrt(np.where(x > 0, x, 1)), _BEYOND)


# The functions of operators whose 16-bit kernels are tables.
TABULATED: dict[str, Callable[[Array], Array]] = {"EXP": np.exp, "LOG": _log, "RSQRT": _rsqrt}


@dataclass(frozen=True)
class Lookup:
    """Input 0 holds numbers of a 16-bit grid with this scale and zero point, input 1 is the table of integers."""

    scale: float
    zero: float


def lookup_node(emit: Emitter, x: Tensor, grid: Grid, result: Grid, function: Callable[[Array], Array]) -> Tensor:
    """``function`` of a tensor on ``grid``, by a table of numbers on the grid ``result``; both are of 16 bits."""
    entries = emit.constant(table(grid, result, function))
    attributes, epilogue = Lookup(grid.scale, grid.zero), (dequantize_op(result),)
    return emit.node("lookup", [x, entries], x.shape, attributes, epilogue)


def table(grid: Grid, result: Grid, function: Callable[[Array], Array]) -> Array:
    """The integers at the ends of the segments, each moved by half of the error in the middle of the next segment."""
    least, greatest = grid.limits
    low, step = grid.scale * (least - grid.zero), grid.scale * (greatest - least) / SEGMENTS
    with np.errstate(all="ignore"):  # an absurd scale gives an absurd table, as it does in TFLite
        starts = low + step * np.arange(SEGMENTS)
        # TFLite divides by 2**16 steps between the limits, where there is one less.
        quanta = np.divide(2.0**16 / (2.0**16 - 1), result.scale)
        value, middle, end = (function(starts + shift) * quanta for shift in (0, step / 2, step))
        value = half_away(value)
        error = half_away((value + end) / 2) - half_away(middle)
        last = half_away(function(np.array(low + step * SEGMENTS)) * quanta)
        entries: Array = np.clip(np.append(value - half_away(error / 2), last), *result.limits).astype(np.int32)
    return entries
