"""Operators that compute: elementwise, logic, reductions, products of matrices, normalization."""

from __future__ import annotations

from tflgpu.ops.arithmetic import (
    elementwise,
    logic,
    lookup,
    matmul,
    normalization,
    reduction,
    scan,
    spectrum,
    stablehlo,
)

__all__ = ["elementwise", "logic", "lookup", "matmul", "normalization", "reduction", "scan", "spectrum", "stablehlo"]
