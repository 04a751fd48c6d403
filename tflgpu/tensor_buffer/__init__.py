"""LiteRT's ``ai_edge_litert.tensor_buffer``: memory of a tensor, on the host or on the device."""

from __future__ import annotations

from tflgpu.tensor_buffer.buffer import TensorBuffer

__all__ = ["TensorBuffer"]
