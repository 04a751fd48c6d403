"""Sums, averages, products and layers of 16-bit activations.

LiteRT adds up in 64 bits. A float holds whole numbers up to 2^24, so an activation is taken apart into its higher and
its lower byte, and the kernels of floats multiply each. These sums are exact for 518 products of the largest weights,
and for some 2,000 of usual ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import prod

import numpy as np

from tflgpu.graph.ir import Array, Deferred, EpilogueOp, Input, Operand, Tensor, Value
from tflgpu.model.quantization import BIASED_OPERANDS, Grid
from tflgpu.ops.arithmetic.matmul import batch_matmul
from tflgpu.ops.arithmetic.reduction import reduce_node, reduction_axes
from tflgpu.ops.declaration import Emit, Emitter, Site, judged, operands_of
from tflgpu.ops.image.convolution import conv_2d, depthwise_conv_2d, fully_connected, transpose_conv
from tflgpu.ops.image.window import pool
from tflgpu.ops.movement.shaping import reshape_node
from tflgpu.ops.sixteen_bits.rules import BITS, Steps, fixed_point, is_symmetric, rule

SUM_BITS = 15  # by which the terms of a sum are shifted to the left before they are multiplied


def _binary(
    site: Site, emit: Emitter, combined: Callable[[Steps, tuple[Operand, Operand], tuple[Grid, Grid], Grid], Value]
) -> Tensor | None:
    """Return a map node of two operands of 16 bits that broadcast."""
    first, second = site.input_grids
    if first is None or second is None or {first.dtype, second.dtype} != {"int16"}:
        return None
    operands = [site.input(0), site.input(1)]
    shape = np.broadcast_shapes(*(t.shape for t in operands))
    primary = next((t for t in operands if t.shape == shape and not t.is_constant), operands[0])
    inputs, (x, y) = operands_of(primary, operands)
    steps, result = Steps(), judged(site.output_grids[0])
    value = combined(steps, (x, y), (first, second), result)
    epilogue = steps.stored(value, result, site.options.get("fused_activation_function", 0))
    return emit.node("map", inputs, shape, None, epilogue)


@rule("ADD", "SUB")
def total(site: Site, emit: Emitter) -> Tensor | None:
    """Each term is brought to twice the larger scale first."""

    def combined(steps: Steps, operands: tuple[Operand, Operand], grids: tuple[Grid, Grid], result: Grid) -> Value:
        twice = 2 * max(grid.scale for grid in grids)
        signs = 1, -1 if site.code == "SUB" else 1
        terms = tuple(
            steps.rescaled(steps.of(operand, grid), grid.scale / twice, sign=sign, left=SUM_BITS)
            for operand, grid, sign in zip(operands, grids, signs, strict=True)
        )
        return steps.rescaled(steps.op("add", terms), twice / (result.scale * 2**SUM_BITS))

    def shifted(steps: Steps, operands: tuple[Operand, Operand], grids: tuple[Grid, Grid], result: Grid) -> Value:
        terms = [
            steps.op("rounding_shift", (steps.of(operand, grid),), round(np.log2(result.scale / grid.scale)))
            for operand, grid in zip(operands, grids, strict=True)
        ]
        return steps.op("sub" if site.code == "SUB" else "add", tuple(terms))

    if not _are_powers_of_two(site):
        return _binary(site, emit, combined)
    scales, result = [grid.scale for grid in site.input_grids if grid is not None], judged(site.output_grids[0])
    return _binary(site, emit, shifted) if max(scales) == result.scale else None


def _are_powers_of_two(site: Site) -> bool:
    """Whether LiteRT shifts, which it can where the result's scale is the larger one of the operands'."""
    grids = [grid for grid in (*site.input_grids, *site.output_grids) if grid is not None]
    return bool(site.options.get("pot_scale_int16", True)) and all(
        grid.zero == 0 and np.frexp(grid.scale)[0] == 1 / 2 for grid in grids
    )


@rule("MUL")
def product(site: Site, emit: Emitter) -> Tensor | None:
    """Return the product of the steps, by a multiplier that LiteRT computes in float."""

    def combined(steps: Steps, operands: tuple[Operand, Operand], grids: tuple[Grid, Grid], result: Grid) -> Value:
        factors = tuple(steps.of(operand, grid) for operand, grid in zip(operands, grids, strict=True))
        first, second, scale = (np.float32(grid.scale) for grid in (*grids, result))
        return steps.rescaled(steps.op("mul", factors), float(first * second / scale))

    return _binary(site, emit, combined)


@rule("ABS", "RELU", "RELU6", "RELU_N1_TO_1", "QUANTIZE")
def rescaled(site: Site, emit: Emitter) -> Tensor | None:
    """Return the steps of one grid as those of another."""
    grid, result = site.input_grids[0], judged(site.output_grids[0])
    if grid is None or grid.dtype != "int16":
        return None
    steps, activation = Steps(), {"RELU": 1, "RELU_N1_TO_1": 2, "RELU6": 3}.get(site.code, 0)
    ratio = grid.scale / result.scale if site.code == "QUANTIZE" else _ratio(grid, result)
    x = steps.of(Value(0), grid)
    value = steps.rescaled(steps.op("abs", (x,)) if site.code == "ABS" else x, ratio)
    return emit.node("map", [site.input(0)], site.input(0).shape, None, steps.stored(value, result, activation))


def _ratio(grid: Grid, result: Grid, factor: float = 1.0) -> float:
    """Return what brings steps of one grid, times a factor, to those of another; LiteRT divides in single precision."""
    return float(np.float32(grid.scale) * np.float32(factor) / np.float32(result.scale))


@rule("LEAKY_RELU")
def leaky_relu(site: Site, emit: Emitter) -> Tensor | None:
    """Multiply steps above and below 0 by multipliers of their own."""
    grid, result, x = site.input_grids[0], judged(site.output_grids[0]), site.input(0)
    alpha = float(site.options.get("alpha", 0.0))
    if grid is None or grid.dtype != "int16":
        return None
    steps = Steps()
    above, below = _sides(steps, grid)
    left = steps.rescaled(below, _ratio(grid, result, abs(alpha)), sign=-1 if alpha < 0 else 1)
    value = steps.op("add", (steps.rescaled(above, _ratio(grid, result)), left))
    return emit.node("map", [x], x.shape, None, steps.stored(value, result, 0))


@rule("PRELU")
def prelu(site: Site, emit: Emitter) -> Tensor | None:
    """Multiply steps below 0 by those of a slope, which has 8 bits."""
    (grid, slope), result, x = site.input_grids, judged(site.output_grids[0]), site.input(0)
    if grid is None or slope is None or grid.dtype != "int16" or slope.dtype != "int8":
        return None
    steps = Steps()
    above, below = _sides(steps, grid)
    product = steps.op("mul", (below, steps.of(Input(1), slope)))
    left = steps.rescaled(product, _ratio(grid, result, slope.scale))
    value = steps.op("add", (steps.rescaled(above, _ratio(grid, result)), left))
    return emit.node("map", [x, site.input(1)], x.shape, None, steps.stored(value, result, 0))


def _sides(steps: Steps, grid: Grid) -> tuple[Value, Value]:
    """Return the steps of value 0 where they are above zero, and where they are below; 0 elsewhere."""
    x = steps.of(Value(0), grid)
    return steps.op("clamp", (x,), 0, 1 << 16), steps.op("clamp", (x,), -1 << 16, 0)


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


SHORT_BITS = 15  # of the multipliers of 64-bit sums

GREATEST_SHORT = (1 << SHORT_BITS) - 1

# How each layer is emitted.
LAYERS: dict[str, Emit] = {
    "CONV_2D": conv_2d,
    "DEPTHWISE_CONV_2D": depthwise_conv_2d,
    "FULLY_CONNECTED": fully_connected,
    "TRANSPOSE_CONV": transpose_conv,
}


def _bytes(emit: Emitter, x: Tensor, grid: Grid) -> tuple[Tensor, Tensor]:
    """Return the higher and the lower byte of the steps of an activation or a constant, as floats."""
    steps = EpilogueOp("steps", (Value(0),), (grid.scale,))
    high, low = (
        emit.node("map", [x], x.shape, None, (steps, EpilogueOp(part, (Value(1),))))
        for part in ("higher_byte", "lower_byte")
    )
    return high, low


def _whole(weights: Tensor) -> Array:
    assert weights.data is not None and weights.scale is not None
    return np.rint(weights.data / weights.scale).astype(np.float32)


def _short_multipliers(real: Array) -> tuple[Array, Array] | None:
    """Return the multipliers of 15 bits of 64-bit sums, and the bits by which a product is shifted; None beyond
    LiteRT's."""
    multiplier, exponent = fixed_point(real)
    bits = SHORT_BITS - exponent
    if bits.min() < 1 or bits.max() > SHORT_BITS + BITS:
        return None
    return np.minimum(multiplier + (1 << SHORT_BITS) >> SHORT_BITS + 1, GREATEST_SHORT), bits


def _multipliers(code: str, real: Array) -> list[tuple[str, tuple[Array, ...]]]:
    """Return the functions that bring sums to the grid of the result, and their operands for each channel."""
    if code == "FULLY_CONNECTED":  # whose kernels multiply by doubles, and round once
        multiplier, exponent = fixed_point(real)
        return [("mul", (multiplier,)), ("rounding_shift", (BITS - exponent,))]
    short = _short_multipliers(real)
    return [] if short is None else [("scaled_shift", short)]


@rule(*LAYERS)
def layer(site: Site, emit: Emitter) -> Tensor | None:
    """Return a layer of constant weights of 8 bits, whose scales may be those of channels."""
    image, place, bias_place, axis = BIASED_OPERANDS[site.code]
    weights, bias = site.input(place), site.optional(bias_place)
    grid, result = site.input_grids[image], judged(site.output_grids[0])
    zero = site.input_grids[place]
    if grid is None or weights.scale is None or zero is None or zero.zero != 0 or not weights.is_constant:
        return None
    if not (is_symmetric(grid) and is_symmetric(result)) or weights.scale.size not in (1, weights.shape[axis]):
        return None
    sums = grid.scale * weights.scale.reshape(-1)
    multipliers = _multipliers(site.code, sums / result.scale)
    if not multipliers or (bias is not None and (site.stored[bias_place] is None or bias.scale is None)):
        return None
    steps, inputs = Steps(), list[Tensor]()
    value = steps.op("joined", (Value(0), Input(1)))
    if bias is not None:
        assert bias.scale is not None
        integers: Array = judged(site.stored[bias_place]).reshape(-1)
        ratio = bias.scale.reshape(-1) / sums
        if not np.allclose(ratio, 1.0, rtol=1e-5, atol=0):
            integers = np.rint(integers * ratio)
        inputs.append(emit.constant(integers.astype(np.int64)))
        value = steps.op("add", (value, Input(2)))
    whole = emit.deferred(Deferred(partial(_whole, weights), 4 * weights.size), weights.shape)
    high, low = (
        LAYERS[site.code](_bare(site, {image: part, place: whole, bias_place: None}), emit)
        for part in _bytes(emit, site.input(image), grid)
    )
    assert isinstance(high, Tensor) and isinstance(low, Tensor)
    for function, arrays in multipliers:
        operands = tuple(Input(2 + len(inputs) + i) for i in range(len(arrays)))
        value = steps.op(function, (value, *operands))
        inputs += map(emit.constant, arrays)
    epilogue = steps.stored(value, result, site.options.get("fused_activation_function", 0))
    return emit.node("map", [low, high, *inputs], low.shape, None, epilogue)


def _bare(site: Site, inputs: dict[int, Tensor | None]) -> Site:
    """Return the operator with other inputs, and without an activation."""
    changed = tuple(inputs.get(i, tensor) for i, tensor in enumerate(site.inputs))
    return replace(site, inputs=changed, options={**site.options, "fused_activation_function": 0})


@rule("BATCH_MATMUL")
def matrix_product(site: Site, emit: Emitter) -> Tensor | None:
    """Four products of bytes. Their sums are exact up to a depth of 258, beyond which such sums are rare."""
    grids, result = site.input_grids, judged(site.output_grids[0])
    left, right = grids
    if left is None or right is None or not all(map(is_symmetric, (left, right, result))):
        return None
    short = _short_multipliers(np.array([left.scale * right.scale / result.scale]))
    if short is None:
        return None
    sides = [_bytes(emit, site.input(i), grid) for i, grid in enumerate((left, right))]
    parts = []
    for first in sides[0]:
        for second in sides[1]:
            part = batch_matmul(_bare(site, {0: first, 1: second}), emit)
            assert isinstance(part, Tensor)
            parts.append(part)
    steps = Steps()
    upper = steps.op("joined", (Input(1), Input(2)))  # the higher byte of the left side by both of the right
    lower = steps.op("joined", (Value(0), Input(3)))
    value = steps.op("scaled_shift", (steps.op("joined", (lower, upper)),), *(int(n[0]) for n in short))
    low_low, low_high, high_low, high_high = parts[3], parts[2], parts[1], parts[0]
    epilogue = steps.stored(value, result, 0)
    return emit.node("map", [low_low, high_low, high_high, low_high], low_low.shape, None, epilogue)
