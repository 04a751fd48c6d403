"""Operators that compute: elementwise, logic, reductions, products of matrices, normalization."""

from __future__ import annotations

from tflgpu.ops.arithmetic import (  # noqa: F401 - they fill the registry
    audio,
    elementwise,
    matmul,
    reduction,
    scan,
    sorting,
    spectrum,
)
