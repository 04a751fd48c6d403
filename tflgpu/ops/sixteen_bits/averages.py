"""Averages of 16 bits, of axes and of windows."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from tflgpu.graph.ir import EpilogueOp, Tensor, Value
from tflgpu.ops.arithmetic.reduction import reduce_node, reduction_axes
from tflgpu.ops.declaration import Emitter, Site, judged
from tflgpu.ops.image.pooling import pool
from tflgpu.ops.movement.shaping import reshape_node
from tflgpu.ops.sixteen_bits.rules import BITS, Steps, fixed_point, is_symmetric, rule


@rule("MEAN")
def mean(site: Site, emit: Emitter) -> Tensor | None:
    """Return the sum of the steps, by a multiplier that LiteRT divides by their number."""
    x, grid, result, axes = site.input(0), site.input_grids[0], judged(site.output_grids[0]), reduction_axes(site)
    if grid is None or not is_symmetric(grid) or not is_symmetric(result) or axes is None or x.size == 0:
        return None
    count = prod(x.shape[a] for a in axes)
    multiplier, exponent = (int(n) for n in fixed_point(np.array(grid.scale / result.scale)))
    shift = min(count.bit_length() - 1, BITS + 1, BITS + exponent)
    if shift < 0:
        return None
    whole = (EpilogueOp("steps", (Value(0),), (grid.scale,)), EpilogueOp("to_int", (Value(1),)))
    total = reduce_node(emit, emit.node("map", [x], x.shape, None, whole, "int32"), "sum", axes)
    steps = Steps()
    value = steps.multiplied(steps.op("to_long", (Value(0),)), (multiplier << shift) // count, exponent - shift)
    y = emit.node("map", [total], total.shape, None, steps.stored(value, result, 0), "float32")
    kept = bool(site.options.get("keep_dims"))
    return reshape_node(emit, y, tuple(d for i, d in enumerate(y.shape) if kept or i not in axes))


@rule("AVERAGE_POOL_2D")
def average_pool(site: Site, emit: Emitter) -> Tensor | None:
    """Return the average of whole steps, whose halves are rounded away from zero."""
    x, grid, result = site.input(0), site.input_grids[0], judged(site.output_grids[0])
    if grid != result or not is_symmetric(grid):
        return None
    steps = emit.node("map", [x], x.shape, None, (EpilogueOp("steps", (Value(0),), (result.scale,)),))
    bare = replace(site, inputs=(steps,), options={**site.options, "fused_activation_function": 0})
    average = pool(bare, emit)
    assert isinstance(average, Tensor)
    low, high = Steps.limits(result, site.options.get("fused_activation_function", 0))
    rounded = EpilogueOp("fake_quantize", (Value(0),), (1.0, 0.0, low, high))
    epilogue = (rounded, EpilogueOp("dequantize", (Value(1),), (result.scale, 0.0)))
    return emit.node("map", [average], average.shape, None, epilogue)
