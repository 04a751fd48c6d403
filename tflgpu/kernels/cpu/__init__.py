"""Kernels for CPUs: a work-group is one work-item, which computes with explicit vectors of 16 lanes."""

from __future__ import annotations

from tflgpu.kernels.architecture import PORTABLE, Architecture

CPU = Architecture("cpu", lambda target: target.family == "cpu", refines=PORTABLE).register()

VECTOR = 16  # lanes of the widest float vectors
