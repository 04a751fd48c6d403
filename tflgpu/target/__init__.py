"""What planning knows of a device: plain data, so that a plan can be made where no device is."""

from __future__ import annotations

from tflgpu.target.elements import HOST_DTYPES, ITEM_BYTES, ElementType, VectorType, vector_type
from tflgpu.target.target import ExecutorName, Target

__all__ = ["HOST_DTYPES", "ITEM_BYTES", "ElementType", "ExecutorName", "Target", "VectorType", "vector_type"]
