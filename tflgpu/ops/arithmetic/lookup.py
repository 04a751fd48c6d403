"""Functions that TFLite evaluates by a table for 16-bit tensors: 512 segments, linear between their ends.

Where a function is strongly curved, the table differs from it by many quanta. So the table is built and read as TFLite
does (LUTPopulateInt16 and LUTLookup in its common.h).
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

# Stands for an infinite result; the table clips it.
_BEYOND = 2.0**31


def _log(x: Array) -> Array:
    return np.where(x > 0, np.log(np.where(x > 0, x, 1)), -_BEYOND)


def _rsqrt(x: Array) -> Array:
    return np.where(x > 0, 1 / np.sqrt(np.where(x > 0, x, 1)), _BEYOND)


# The functions of operators whose 16-bit kernels are tables.
TABULATED: dict[str, Callable[[Array], Array]] = {"EXP": np.exp, "LOG": _log, "RSQRT": _rsqrt}


@dataclass(frozen=True)
class Lookup:
    """Input 0 holds numbers on a 16-bit grid with this scale and zero point; input 1 is the table, int32 [513]."""

    scale: float
    zero: float


def lookup_node(emit: Emitter, x: Tensor, grid: Grid, result: Grid, function: Callable[[Array], Array]) -> Tensor:
    """``function`` of ``x`` by a table. grid, result: the 16-bit grids of ``x`` and of the result."""
    entries = emit.constant(table(grid, result, function))
    attributes, epilogue = Lookup(grid.scale, grid.zero), (dequantize_op(result),)
    return emit.node("lookup", [x, entries], x.shape, attributes, epilogue)


def table(grid: Grid, result: Grid, function: Callable[[Array], Array]) -> Array:
    """The integers at the ends of the segments, int32 [513].

    Each is moved by half of the error in the middle of the segment after it, as in TFLite.
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
        entries: Array = np.clip(np.append(value - half_away(error / 2), last), *result.limits).astype(np.int32)
    return entries
