"""The operators that run on the device: importing this package fills :data:`REGISTRY`, one family module at a time."""

from __future__ import annotations

from tflgpu.ops import (
    blocks,
    convolution,
    convolution_kernels,
    creation,
    elementwise,
    gather,
    indexing,
    logic,
    matmul,
    mediapipe,
    movement,
    normalization,
    pooling,
    reduction,
    resize,
    scan,
    shaping,
)
from tflgpu.ops.base import REGISTRY, Emit, Emitter, Op, Site

__all__ = [
    "REGISTRY",
    "Emit",
    "Emitter",
    "Op",
    "Site",
    "blocks",
    "convolution",
    "convolution_kernels",
    "creation",
    "elementwise",
    "gather",
    "indexing",
    "logic",
    "matmul",
    "mediapipe",
    "movement",
    "normalization",
    "pooling",
    "reduction",
    "resize",
    "scan",
    "shaping",
]
