"""Sums, products and activations of 16 bits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tflgpu.graph.ir import Operand, Tensor, Value
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

    return None if _are_powers_of_two(site) else _binary(site, emit, combined)


def _are_powers_of_two(site: Site) -> bool:
    """Whether LiteRT may take another kernel, of which its sets have two."""
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


@rule("RELU", "RELU6", "RELU_N1_TO_1", "QUANTIZE")
def rescaled(site: Site, emit: Emitter) -> Tensor | None:
    """Return the steps of one grid as those of another."""
    grid, result = site.input_grids[0], judged(site.output_grids[0])
    if grid is None or grid.dtype != "int16":
        return None
    steps, activation = Steps(), {"RELU": 1, "RELU_N1_TO_1": 2, "RELU6": 3}.get(site.code, 0)
    value = steps.rescaled(steps.of(Value(0), grid), grid.scale / result.scale)
    return emit.node("map", [site.input(0)], site.input(0).shape, None, steps.stored(value, result, activation))


@rule("LEAKY_RELU")
def leaky_relu(site: Site, emit: Emitter) -> Tensor | None:
    """Multiply steps above and below 0 by multipliers of their own."""
    grid, result = site.input_grids[0], judged(site.output_grids[0])
    alpha = float(site.options.get("alpha", 0.0))
    if grid is None or grid.dtype != "int16" or alpha < 0:
        return None
    steps = Steps()
    x = steps.of(Value(0), grid)
    scale = grid.scale / result.scale
    above = steps.rescaled(steps.op("clamp", (x,), 0, 1 << 16), scale)
    below = steps.rescaled(steps.op("clamp", (x,), -1 << 16, 0), alpha * scale)
    epilogue = steps.stored(steps.op("add", (above, below)), result, 0)
    return emit.node("map", [site.input(0)], site.input(0).shape, None, epilogue)
