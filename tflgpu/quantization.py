"""The float view of quantized models: integers are seen as the numbers they stand for.

Constants are dequantized once. Activations are floats, rounded after each operator to what their integer type could
have held (*simulated*), so that a model computes what its authors measured. Inputs and outputs convert on the device.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tflgpu.ir import Step, Value
from tflgpu.tflite import FileTensor

QUANTIZED_TYPES = ("int8", "uint8", "int16")

# Operators whose results are some of their inputs' values: rounding them again would change nothing.
KEEPS_QUANTA = frozenset(
    (
        "BATCH_TO_SPACE_ND",
        "BROADCAST_TO",
        "DEPTH_TO_SPACE",
        "DEQUANTIZE",
        "EMBEDDING_LOOKUP",
        "EXPAND_DIMS",
        "GATHER",
        "GATHER_ND",
        "MAX_POOL_2D",
        "MIRROR_PAD",
        "PAD",
        "RESHAPE",
        "RESIZE_NEAREST_NEIGHBOR",
        "REVERSE_V2",
        "SLICE",
        "SPACE_TO_BATCH_ND",
        "SPACE_TO_DEPTH",
        "SPLIT",
        "SPLIT_V",
        "SQUEEZE",
        "STRIDED_SLICE",
        "TILE",
        "TRANSPOSE",
        "UNPACK",
    )
)


def is_quantized(tensor: FileTensor) -> bool:
    """Whether the tensor's integers stand for real numbers; int32 only as a constant, which is a bias."""
    bias = tensor.dtype in ("int32", "int64") and tensor.data is not None
    return tensor.quantization is not None and (tensor.dtype in QUANTIZED_TYPES or bias)


def view_dtype(tensor: FileTensor) -> str:
    """The element type of a tensor in the float view."""
    return "float32" if is_quantized(tensor) else tensor.dtype


def dequantized(tensor: FileTensor) -> NDArray[np.float32]:
    """``scale * (q - zero_point)`` of a constant, in double, one scale for all or one for each index along the axis."""
    assert tensor.quantization is not None and tensor.data is not None
    q, shape = tensor.quantization, [1] * tensor.data.ndim
    if len(q.scale) > 1:
        shape[q.axis] = len(q.scale)
    scale, zero = np.reshape(q.scale, shape), np.reshape(q.zero_point, shape)
    with np.errstate(all="ignore"):  # an absurd scale gives infinities, as it would in any runtime
        result: NDArray[Any] = scale * (tensor.data.astype(np.float64) - zero)
        return result.astype(np.float32)


def dequantize_step(tensor: FileTensor) -> Step:
    scale, zero = _parameters(tensor)
    return Step("dequantize", (Value(0),), (scale, zero))


def quantize_step(tensor: FileTensor) -> Step:
    return Step("quantize", (Value(0),), (*_parameters(tensor), *_limits(tensor)))


def simulate_step(tensor: FileTensor) -> Step:
    """Clamp to the range of the integer type and round to its grid."""
    return Step("simulate", (Value(0),), (*_parameters(tensor), *_limits(tensor)))


def _limits(tensor: FileTensor) -> tuple[float, float]:
    limits = np.iinfo(tensor.dtype)
    return float(limits.min), float(limits.max)


def _parameters(tensor: FileTensor) -> tuple[float, float]:
    """Scale and zero point of an activation, which has one pair."""
    assert tensor.quantization is not None
    return tensor.quantization.scale[0], float(tensor.quantization.zero_point[0])
