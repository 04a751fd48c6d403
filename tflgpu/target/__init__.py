"""Planning's knowledge of a device: plain data, so that a plan can be made where no device is."""

from __future__ import annotations

from tflgpu.target.cost_model import BUILT_IN_COSTS, CostModel
from tflgpu.target.device_limits import VEC4_BYTES, Limits, cpu_work
from tflgpu.target.elements import (
    DEVICE_ELEMENTS,
    FLOAT_WHOLE,
    HALF_MAX,
    HALF_WHOLE,
    HOST_DTYPES,
    ITEM_BYTES,
    WIDE,
    WIDEST,
    ElementType,
    VectorType,
    is_exact_in_half,
    vector_of,
    vector_type,
)
from tflgpu.target.target import WHOLE_PLAN, ExecutorName, Target, precision_of

__all__ = [
    "BUILT_IN_COSTS",
    "DEVICE_ELEMENTS",
    "FLOAT_WHOLE",
    "HALF_MAX",
    "HALF_WHOLE",
    "HOST_DTYPES",
    "ITEM_BYTES",
    "VEC4_BYTES",
    "WHOLE_PLAN",
    "WIDE",
    "WIDEST",
    "CostModel",
    "ElementType",
    "ExecutorName",
    "Limits",
    "Target",
    "VectorType",
    "cpu_work",
    "is_exact_in_half",
    "precision_of",
    "vector_of",
    "vector_type",
]
