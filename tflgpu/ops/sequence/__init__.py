"""Operators with a memory of time."""

from __future__ import annotations

from tflgpu.ops.sequence import lstm, lstm_node  # noqa: F401 - they fill the registry
