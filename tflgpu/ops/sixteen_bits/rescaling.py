"""Sums, products and activations of 16 bits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tflgpu.graph.ir import Input, Operand, Tensor, Value
from tflgpu.model.quantization import Grid
from tflgpu.ops.declaration import Emitter, Site, judged, operands_of
from tflgpu.ops.sixteen_bits.rules import Steps, rule

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
