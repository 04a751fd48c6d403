"""Operators of images: convolutions, pooling, resizing, and the boxes of detectors."""

from __future__ import annotations

from tflgpu.ops.image import (  # noqa: F401 - they fill the registry
    convolution,
    convolution_3d,
    detection,
    landmarks,
    mediapipe,
    pooling,
    resampler,
    resize,
    window,
)
