"""Epilogues whose value 0 is divided by the scale that they would divide by."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tflgpu.graph.ir import EpilogueOp, Value


def without_division(epilogue: tuple[EpilogueOp, ...]) -> tuple[tuple[EpilogueOp, ...], float]:
    """Return an epilogue for a value 0 that is divided by the scale of the grid to which it rounds first.

    Args:
        epilogue: The node's.

    Returns:
        The epilogue and that scale; the same epilogue and 1 if it does anything else first.
    """
    if not epilogue or epilogue[0].function != "fake_quantize" or epilogue[0].operands != (Value(0),):
        return epilogue, 1.0
    rounding, *after = epilogue
    scale = rounding.parameters[0]
    if any(Value(0) in op.operands for op in after) or not np.finfo(np.float32).tiny <= scale < np.inf:
        return epilogue, 1.0
    return (replace(rounding, parameters=(*rounding.parameters, 1.0)), *after), scale
