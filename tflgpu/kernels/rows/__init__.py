"""Kernels of what is normalized along the last axis: softmax, layer normalization and attention."""

from __future__ import annotations

KERNELS: tuple[str, ...] = ()
