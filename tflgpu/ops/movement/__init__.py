"""Operators that move elements and compute nothing."""

from __future__ import annotations

from tflgpu.ops.movement import blocks, creation, gather, indexing, pad, rearranging, scatter, shaping, slicing

__all__ = ["blocks", "creation", "gather", "indexing", "pad", "rearranging", "scatter", "shaping", "slicing"]
