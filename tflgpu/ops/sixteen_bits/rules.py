"""Which operators have a rule, and what all rules need: multipliers of fixed point, and epilogues in whole numbers."""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np

from tflgpu.graph.ir import Array, EpilogueOp, Operand, Tensor, Value
from tflgpu.model.quantization import ACTIVATION_RANGES, Grid
from tflgpu.ops.declaration import Emitter, Site
from tflgpu.ops.epilogue_ops import half_away

# Gives the result, on its grid, or None before it has emitted anything where LiteRT has no kernel of integers for it.
Rule = Callable[[Site, Emitter], Tensor | None]

# The rule of an operator, the type of its results, and the fused activations that it knows.
RULES: dict[str, tuple[Rule, str, Collection[int]]] = {}

BITS = 31  # after the binary point of a multiplier

# The fused activations that only clamp, by their numbers in the schema: NONE, RELU, RELU_N1_TO_1, RELU6.
CLAMPS = (0, 1, 2, 3)


def rule(*codes: str, results: str = "int16", activations: Collection[int] = CLAMPS) -> Callable[[Rule], Rule]:
    """Register the decorated function as a rule.

    Args:
        *codes: The operators.
        results: The integers of the result.
        activations: The fused activations with which the rule can do.
    """

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(codes, (function, results, activations)))
        return function

    return register


def rule_for(site: Site, missing_types: Collection[str]) -> Rule | None:
    """Return the rule of an operator of 16-bit grids; None if there is none.

    Args:
        site: The operator.
        missing_types: Element types that the device does not have; rules need int64.
    """
    if site.code not in RULES or len(site.output_grids) != 1 or "int64" in missing_types:
        return None
    function, results, activations = RULES[site.code]
    (grid,), activation = site.output_grids, site.options.get("fused_activation_function", 0)
    return function if grid is not None and grid.dtype == results and activation in activations else None


def is_symmetric(grid: Grid | None) -> bool:
    """Whether a grid is one of 16 bits around 0, as LiteRT's kernels of layers ask for.

    Args:
        grid: None is no grid.
    """
    return grid is not None and grid.dtype == "int16" and grid.zero == 0


def fixed_point(real: Array) -> tuple[Array, Array]:
    """Return multipliers from half of 2^31 to 2^31, and the powers of two by which that is multiplied.

    Args:
        real: Positive factors.
    """
    fraction, exponent = np.frexp(real)
    multiplier = half_away(fraction * 2.0**BITS).astype(np.int64)
    is_one = multiplier == 1 << BITS
    multiplier, exponent = np.where(is_one, multiplier // 2, multiplier), exponent + is_one
    return np.where(exponent < -BITS, 0, multiplier), np.where(exponent < -BITS, 0, exponent).astype(np.int64)


class Steps:
    """An epilogue in the making, whose values are whole numbers of steps of grids, as 64-bit integers."""

    def __init__(self) -> None:
        self.ops: list[EpilogueOp] = []

    def op(self, function: str, operands: tuple[Operand, ...], *parameters: float) -> Value:
        """Add an op, and return its value.

        Args:
            function: The op's.
            operands: Values and inputs.
            *parameters: Constants of the op.
        """
        self.ops.append(EpilogueOp(function, operands, parameters))
        return Value(len(self.ops))

    def of(self, operand: Operand, grid: Grid) -> Value:
        """How many steps of the grid a float is away from its zero point."""
        return self.op("to_long", (self.op("steps", (operand,), grid.scale),))

    def rescaled(self, value: Value, real: float, *, sign: int = 1, left: int = 0) -> Value:
        """Return ``value * 2**left * real``, where LiteRT quantizes the multiplier.

        Args:
            value: An integer.
            real: A positive factor.
            sign: 1, or -1 for the negative product.
            left: Bits by which the multiplier is shifted.
        """
        multiplier, exponent = (int(n) for n in fixed_point(np.array(real)))
        return self.multiplied(value, sign * multiplier << left, exponent)

    def multiplied(self, value: Value, multiplier: int, exponent: int) -> Value:
        """Return ``value * multiplier * 2**(exponent - 31)``, rounded twice: halves up, and then away from zero.

        Args:
            value: An integer.
            multiplier: Of :func:`fixed_point`.
            exponent: Of :func:`fixed_point`.
        """
        value = self.op("scaled_shift", (value,), multiplier << max(exponent, 0), BITS)
        return self.op("rounding_shift", (value,), -exponent) if exponent < 0 else value

    def stored(self, value: Value, grid: Grid, activation: int) -> tuple[EpilogueOp, ...]:
        """Return the epilogue that ends with the float of steps, within the limits of the grid and of an activation.

        Args:
            value: Steps from the zero point.
            grid: The result's.
            activation: The number of a fused activation.
        """
        bounded = self.op("clamp", (value,), *(int(n) for n in self.limits(grid, activation)))
        self.op("dequantize", (bounded,), grid.scale, 0.0)
        return tuple(self.ops)

    @staticmethod
    def limits(grid: Grid, activation: int) -> tuple[float, float]:
        """Return the least and the greatest number of steps from the zero point.

        Args:
            grid: The result's.
            activation: The number of a fused activation.
        """
        low, high = (limit - grid.zero for limit in grid.limits)
        for limit in ACTIVATION_RANGES[activation]:
            if np.isfinite(limit):
                step = float(half_away(np.array(limit, np.float32) / np.float32(grid.scale)))
                low, high = (max(low, step), high) if limit <= 0 else (low, min(high, step))
        return low, high
