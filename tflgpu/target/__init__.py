"""What planning knows of a device: plain data, so that a plan can be made where no device is."""

from __future__ import annotations

from tflgpu.target.cost_model import HOPPER, CostModel
from tflgpu.target.elements import HOST_DTYPES, ITEM_BYTES, ElementType, VectorType, vector_type
from tflgpu.target.target import ExecutorName, Target

__all__ = [
    "HOPPER",
    "HOST_DTYPES",
    "ITEM_BYTES",
    "CostModel",
    "ElementType",
    "ExecutorName",
    "Target",
    "VectorType",
    "vector_type",
]
