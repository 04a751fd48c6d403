"""The analysis of half precision: the numbers that tensors hold, what rounding them does, and which stay in float."""

from __future__ import annotations

from tflgpu.passes.half_precision.keep_precise import keep_measured, keep_precise, leaving_tensors

__all__ = ["keep_measured", "keep_precise", "leaving_tensors"]
