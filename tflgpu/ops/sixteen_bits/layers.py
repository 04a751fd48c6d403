"""Products of 16-bit activations with weights of 8 bits, and with each other.

LiteRT adds up in 64 bits. A float holds whole numbers up to 2^24, so an activation is taken apart into its higher and
its lower byte, and the kernels of floats multiply each. These sums are exact for 518 products of the largest weights,
and for some 2,000 of usual ones.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from tflgpu.graph.deferred import Deferred
from tflgpu.graph.ir import Array, EpilogueOp, Input, Tensor, Value
from tflgpu.model.quantization import BIASED_OPERANDS, Grid
from tflgpu.ops.arithmetic.matmul import batch_matmul
from tflgpu.ops.declaration import Emit, Emitter, Site, judged
from tflgpu.ops.image.convolution import conv_2d, depthwise_conv_2d, fully_connected, transpose_conv
from tflgpu.ops.sixteen_bits.rules import BITS, Steps, fixed_point, is_symmetric, rule

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
