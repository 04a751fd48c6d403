"""Passes that rewrite the graph; they are the same for every device."""

from __future__ import annotations

from tflgpu.passes.pipeline import PASSES, Pass, Step, optimize, optimizing

__all__ = ["PASSES", "Pass", "Step", "optimize", "optimizing"]
