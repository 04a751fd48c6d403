"""Epilogues whose value 0 is divided by the scale that they would divide by."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tflgpu.graph.ir import EpilogueOp, Value


def without_division(epilogue: tuple[EpilogueOp, ...]) -> tuple[tuple[EpilogueOp, ...], float]:
    """Return an epilogue that need not divide by the scale of the grid that it rounds to first, if value 0 is divided
    by it.

    Also that scale; 1 and the same epilogue if it does anything else first.
    """
    if not epilogue or epilogue[0].function != "fake_quantize" or epilogue[0].operands != (Value(0),):
        return epilogue, 1.0
    rounding, *after = epilogue
    scale = rounding.parameters[0]
    if any(Value(0) in op.operands for op in after) or not np.finfo(np.float32).tiny <= scale < np.inf:
        return epilogue, 1.0
    return (replace(rounding, parameters=(*rounding.parameters, 1.0)), *after), scale
