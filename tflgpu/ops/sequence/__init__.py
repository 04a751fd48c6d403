"""Operators with a memory of time."""

from __future__ import annotations

from tflgpu.ops.sequence import lstm, lstm_node

__all__ = ["lstm", "lstm_node"]
