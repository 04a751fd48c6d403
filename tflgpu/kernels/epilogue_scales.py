"""Epilogues whose value 0 is divided by the scale that they would divide by."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tflgpu.graph.ir import EpilogueOp, Value

ACTIVATIONS = {"relu": (0.0, None), "relu6": (0.0, 6.0), "relu_n1_to_1": (-1.0, 1.0)}  # their ranges


def without_division(epilogue: tuple[EpilogueOp, ...]) -> tuple[tuple[EpilogueOp, ...], float]:
    """An epilogue that need not divide by the scale of the grid that it rounds to, if value 0 is divided by it before.

    Also that scale; 1 and the same epilogue if it does more than round, perhaps after an activation.
    """
    place = next((k for k, op in enumerate(epilogue) if op.function == "fake_quantize"), None)
    if place is None:
        return epilogue, 1.0
    before, rounding, after = epilogue[:place], epilogue[place], epilogue[place + 1 :]
    scale = rounding.parameters[0]
    in_turn = all(op.operands == (Value(k),) for k, op in enumerate((*before, rounding)))
    read_again = any(isinstance(o, Value) and o.index <= place for op in after for o in op.operands)
    if not in_turn or read_again or not np.finfo(np.float32).tiny <= scale < np.inf:
        return epilogue, 1.0
    if any(op.function not in ACTIVATIONS for op in before):
        return epilogue, 1.0
    rounding = replace(rounding, parameters=(*rounding.parameters, 1.0))
    return (*(_divided_activation(op, scale) for op in before), rounding, *after), scale


def _divided_activation(op: EpilogueOp, divisor: float) -> EpilogueOp:
    """The activation for operands that are divided by a number."""
    low, high = ACTIVATIONS[op.function]
    return op if high is None else replace(op, function="clamp", parameters=(low / divisor, high / divisor))
