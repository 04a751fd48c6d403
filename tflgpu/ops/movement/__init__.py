"""Operators that move elements and compute nothing."""

from __future__ import annotations

from tflgpu.ops.movement import (  # noqa: F401 - they fill the registry
    blocks,
    creation,
    indexing,
    rearranging,
    scatter,
    shaping,
    slicing,
)
