"""Graph -> graph, for every device alike."""

from __future__ import annotations

from tflgpu.passes.pipeline import PASSES, Pass, optimize, optimizing

__all__ = ["PASSES", "Pass", "optimize", "optimizing"]
