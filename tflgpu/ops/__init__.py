"""Meaning of operators: importing this package fills :data:`REGISTRY`, one family module at a time.

A declaration says what an operator takes, why it may have no place on a device, and which nodes it becomes. How a node
is computed is the business of :mod:`tflgpu.kernels`.
"""

from __future__ import annotations

from tflgpu.ops import arithmetic, image, lstm, movement, sixteen_bits
from tflgpu.ops.declaration import REGISTRY, Check, Emit, Emitter, Op, Site, declare, find_operator

__all__ = [
    "REGISTRY",
    "Check",
    "Emit",
    "Emitter",
    "Op",
    "Site",
    "arithmetic",
    "declare",
    "find_operator",
    "image",
    "lstm",
    "movement",
    "sixteen_bits",
]
